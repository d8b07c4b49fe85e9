"""What is left of a token in its hidden vector? The page of hidden attribution."""

from torch import Tensor

from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.report.header import Mode, Panels, Story
from exhibit_a.report.pack import Blocks, pack
from exhibit_a.report.panels import sequence, site_entry, storage_note
from exhibit_a.report.views.dispatch import panels_of

BUDGET = 220_000  # bytes, before base64


@panels_of.register
def hidden_panels(result: HiddenAttribution, blocks: Blocks) -> Panels:
    """The story of every token."""
    special = tuple(result.special.tolist())
    sequences = {result.source: sequence(result.source_tokens)}
    sequences[result.stack] = sequence(result.tokens or (), special)
    return {"sequences": sequences, "story": story(result, blocks)}


def story(result: HiddenAttribution, blocks: Blocks) -> Story:
    """Which tokens are in every hidden vector, layer by layer."""
    modes = {"contribution": tuple(layer.unsqueeze(0) for layer in result.contribution)}
    packed = pack(blocks, "story", modes, together=[["contribution"]], budget=BUDGET)
    axes = (result.stack, result.source)
    site = site_entry("story", "", axes, tuple(result.contribution.shape))
    visible = packed.visible[-1]  # the last layer sees most
    if visible:
        site["visible"] = visible
    for layer, head in enumerate(packed.heads):
        head["site"], head["head"] = 0, layer
    errors = _errors(result, blocks)
    how = (
        "Exact Jacobians."
        if errors is None
        else "Estimated from random directions; ± says how well."
    )
    contribution: Mode = {
        "key": "contribution",
        "name": "contribution",
        "caption": "",
        "limit": 1.0,
        "signed": False,
    }
    return {
        "maps": {
            "modes": [contribution],
            "sites": [site],
            "heads": packed.heads,
            "columns": [],
            "words": [],
            "bits": packed.bits,
            "groups": packed.groups,
            "note": "",
        },
        "targets": result.stack,
        "sources": result.source,
        "errors": errors,
        "note": how if packed.groups is None else f"{how} {storage_note(packed)}",
    }


def _errors(result: HiddenAttribution, blocks: Blocks) -> str | None:
    """The block with the standard errors of the own shares; None where they are exact."""
    if result.stack != result.source or not bool((result.standard_error > 0).any()):
        return None
    own_shares: Tensor = result.standard_error.diagonal(dim1=1, dim2=2).contiguous()
    data = own_shares.detach().cpu().float().numpy().astype("<f4").tobytes()
    return blocks.add("story/errors", data)
