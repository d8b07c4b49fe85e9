"""Does the answer rest on where the heads look? The page of a reliance."""

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.report.header import Column, Panels
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import attention_maps, sequence, site_entries
from exhibit_a.report.sentences import reliance_sentences
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.subject.anatomy import main_stack

_COLUMNS = {
    "share": ("share", "Part of what the answer loses when all heads look evenly, in its margin."),
    "alone": ("alone", "What the answer loses when this head alone looks evenly."),
    "error": ("error", "Standard error of the share; 0 where nothing was sampled."),
    "null": ("by chance", "Spread of the share, had the rows been permuted."),
    "pointing": ("points", "Cosine of weights and contributions, row by row."),
    "coherence": ("coherence", "How far its rows speak for the same side: 1 all, 0 half of them."),
    "alignment": ("alignment", "Correlation of weights and gradients along rows."),
}


@panels_of.register
def reliance_panels(result: Reliance, blocks: Blocks) -> Panels:
    """What the answer becomes, and the share of every head, edge by edge."""
    columns: list[Column] = [
        {"key": key, "name": name, "help": help_} for key, (name, help_) in _COLUMNS.items()
    ]
    sites = site_entries(result, result.edges)
    maps = attention_maps(blocks, {"reliance": result.edges}, sites, columns)
    by_column = {
        "share": result.heads,
        "alone": result.one_head,
        "error": result.standard_error,
        "null": result.null,
        "pointing": result.pointing,
        "coherence": result.coherence,
        "alignment": result.alignment,
    }
    for entry in maps["heads"]:
        entry["numbers"] = {
            key: float(heads[entry["site"]][entry["head"]]) for key, heads in by_column.items()
        }
    scores = result.token_scores
    sentences = reliance_sentences(result, {})
    headline = sentences.pop(1) if result.determined else f"Not determined: {result.reason}."
    return {
        "sequences": {stack: sequence(tokens) for stack, tokens in result.sequences.items()},
        "summary": {
            "advice": headline,
            "answer": [],
            "target": result.target,
            "word": "",
            "verdict": "",
            "reliance": sentences,
            "carriers": "",
            "sequence": main_stack(result.sites),
            "shares": scores.tolist(),
            "caption": "Shaded by what looking at each word, in place of an even look, added to "
            "the answer (orange) or took from it (blue), all heads and layers together.",
            "skipped": [],
        },
        "maps": maps,
    }
