"""Pictures from files: whatever is a picture becomes plain colours, and nothing else gets far."""

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.subject import images
from exhibit_a.subject.images import read_picture

image = pytest.importorskip("PIL.Image")


def test_a_picture_is_upright_and_in_plain_colours(tmp_path):
    wide = image.new("RGB", (4, 2), "red")
    wide.putpixel((0, 0), (0, 0, 255))
    exif = image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    wide.save(tmp_path / "turned.png", exif=exif)
    turned = read_picture(tmp_path / "turned.png")
    assert turned.size == (2, 4)
    assert turned.getpixel((1, 0)) == (0, 0, 255)


@pytest.mark.parametrize("mode", ["P", "L", "LA", "RGBA", "1", "CMYK", "I;16"])
def test_every_kind_of_pixels_is_converted(mode, tmp_path):
    name = tmp_path / ("picture.tiff" if mode in ("CMYK", "I;16") else "picture.png")
    image.new(mode, (3, 3)).save(name)
    assert read_picture(name).mode == "RGB"


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path):
    steps = image.new("I;16", (3, 1))
    for place, level in enumerate((0, 32768, 65535)):
        steps.putpixel((place, 0), level)
    steps.save(tmp_path / "deep.png")
    read = read_picture(tmp_path / "deep.png")
    assert [read.getpixel((place, 0))[0] for place in range(3)] == [0, 127, 255]


def test_of_a_moving_picture_the_first_is_read(tmp_path):
    frames = [image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert read_picture(tmp_path / "moving.gif").getpixel((0, 0)) == (255, 0, 0)


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MOST_PIXELS", 40 * 40)
    text, broken, large = (tmp_path / name for name in ("text.png", "broken.png", "large.png"))
    text.write_text("no picture")
    image.effect_noise((40, 40), 9).save(broken)
    broken.write_bytes(broken.read_bytes()[:200])
    image.new("RGB", (40, 41)).save(large)
    for file in (text, broken, large, tmp_path, tmp_path / "nothing.png"):
        with pytest.raises(BadRequestError) as refused:
            read_picture(file)
        assert "is not a readable image file: " in str(refused.value)
        assert "\n" not in str(refused.value)
