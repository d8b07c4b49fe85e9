"""The page of every kind of model: what attends to itself, what crosses over, what sees."""

import pytest
from support.axe import examined_by_axe
from support.chromium import visit
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES

import exhibit_a as xa

KINDS = {"llama": {}, "bart": {"color_scheme": "dark"}, "vit": {"width": 390}}
MODES = ("raw", "effective", "attribution", "difference")
MORE = ("gpt2", "t5", "whisper")
TEXT = "the plot is not great but acting saves it . really a very fine film , not dull"


def walked(browser, trial, folder):
    """Every head in every mode, and what the page says at the top."""
    address = trial.html(folder / "page.html").as_uri()
    with visit(browser, address) as seen:
        seen.page.wait_for_selector("canvas[data-shown]")
        cells = seen[".cell"]
        words = [cells.nth(place).get_attribute("data-word") for place in range(cells.count())]
        assert words == [head.word for head in trial.verdicts]
        drawn = set()
        for place in range(0, cells.count(), 4):  # a head of every site
            cells.nth(place).click()
            for mode in MODES:
                seen[f"[data-mode={mode}]"].first.click()
                drawn.add(seen.pixels())
        assert len(drawn) > 2 * len(trial.sites)
        assert seen.complaints == []
        assert seen.requests == [address]
        return " ".join(seen.text("header.summary").split())


@pytest.mark.parametrize(
    "family", ["llama", "bart", "vit", *(pytest.param(f, marks=pytest.mark.slow) for f in MORE)]
)
def test_a_page_shows_every_kind_of_model(browser, family, tmp_path):
    trial = xa.trial(subject_of(family), FAMILIES[family].inputs(), probes=2)
    summary = walked(browser, trial, tmp_path)
    assert trial.advice in summary
    assert trial.verdict in summary
    assert all(name in summary for name in trial.answer)


@pytest.mark.parametrize("family", KINDS)
def test_axe_finds_nothing_serious_in_any_kind_of_page(browser, family, tmp_path):
    trial = xa.trial(subject_of(family), FAMILIES[family].inputs(), probes=2)
    with visit(browser, trial.html(tmp_path / "page.html").as_uri(), **KINDS[family]) as seen:
        seen.page.wait_for_selector("canvas[data-shown]")
        seen.settle()
        assert examined_by_axe(seen) == []


def test_a_translation_names_the_words_of_both_sides(browser, tmp_path):
    subject = speaker("t5")
    trial = xa.trial(subject, TEXT, target_text="a fine film", probes=2)
    crossing = next(site.index for site in trial.sites if site.kind == "cross")
    assert "film" in trial.tokens_of(crossing)[0]
    assert "dull" in trial.tokens_of(crossing)[1]
    assert "dull" in walked(browser, trial, tmp_path)


def test_a_picture_is_shown_under_its_scores_and_a_patch_can_be_chosen(browser, tmp_path):
    trial = xa.trial(subject_of("vit"), FAMILIES["vit"].inputs(), probes=2)
    with visit(browser, trial.html(tmp_path / "page.html").as_uri()) as seen:
        seen.page.wait_for_selector(".centre .overlay .patch")
        assert seen["header.summary .overlay .patch"].count() == 16
        assert seen["header.summary .text .token"].count() == 1  # [CLS]; patches are no words
        assert "image 16×16, 4×4 patches" in seen.text(".centre .overlay")
        before = seen[".centre .overlay svg"].inner_html()
        seen[".centre .overlay .patch"].nth(5).click()
        assert seen[".centre .overlay .patch.chosen"].get_attribute("data-position") == "6"
        assert "1,1" in seen.text(".centre .overlay h3")
        assert seen[".centre .overlay svg"].inner_html() != before
        assert seen.complaints == []
