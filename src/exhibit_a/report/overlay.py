"""How does a page show what was looked at, when that is a picture?

The picture itself goes into the page, as the model was given it, and with it the position at each
row and column of patches; the page lays scores over it.
"""

import torch
from torch.nn.functional import interpolate

from exhibit_a.report.header import Scene as Panel
from exhibit_a.report.header import Sequence
from exhibit_a.report.picture import data_uri
from exhibit_a.subject.images import Scene

LARGEST = 448  # pixels to a side of the picture in a page


def scene_panel(scene: Scene, sequences: dict[str, Sequence]) -> Panel:
    """The picture and its grids, by the names that the page has for its sequences."""
    height, width = scene.pixels.shape[:2]
    grids = {stack: pictures[0].tolist() for stack, pictures in scene.grids.items()}
    for name, sequence in sequences.items():  # a result over one stack calls it "tokens"
        for grid in list(grids.values()):
            fits = max(map(max, grid)) < len(sequence["tokens"])
            if name not in grids and name == "tokens" and fits:
                grids[name] = grid
    return {
        "source": data_uri(_small(scene).numpy()),
        "width": width,
        "height": height,
        "grids": {name: grid for name, grid in grids.items() if name in sequences},
        "caption": f"{scene}, as the model was given it.",
    }


def _small(scene: Scene) -> torch.Tensor:
    """The picture, no larger than a page needs."""
    height, width = scene.pixels.shape[:2]
    factor = LARGEST / max(height, width)
    if factor >= 1:
        return scene.pixels.contiguous()
    colours = scene.pixels.permute(2, 0, 1)[None].float()
    small = interpolate(colours, scale_factor=factor, mode="area")[0]
    return small.permute(1, 2, 0).round().to(torch.uint8).contiguous()
