"""How often each method puts the passage with the fact first, for docs/context.md."""

from statistics import mean

from page_tables import read, table, wilson

NAMES = {
    "leave_one_out": "leave one out (referee)",
    "regression": "regression over 32 random halves (referee)",
    "attention_gradient": "attention × gradient",
    "relevance": "relevance",
    "gradient_input": "gradient × input",
    "contribution_weights": "contribution weights",
    "mean_attention": "mean attention of all heads",
    "self_attribution": "self-attribution",
    "reliance": "reliance, along a path of at most 60 points",
}
DEAR = ("regression", "self_attribution", "reliance")  # run on the first of the prompts


def planted() -> str:
    """Every method beside leaving each passage out."""
    body, cheap = [], read("context-planted.jsonl")
    for name, label in NAMES.items():
        rows = read(f"context-{name}.jsonl") if name in DEAR else cheap
        name = "reliance_path" if name == "reliance" else name
        hits = mean(row["first"][name] == row["evidence"] for row in rows)
        low, high = wilson(hits, len(rows))
        ranks = [row["spearman"][name] for row in rows if name in row["spearman"]]
        passes = [round(mean(row["passes"][name][way] for row in rows)) for way in (0, 1)]
        agreed = f"{mean(ranks):.2f}" if ranks else ""
        line = [len(rows), f"{hits:.0%}", f"{low:.0%} – {high:.0%}", agreed, *passes]
        body.append([label, *line])
    head = ["method", "prompts", "evidence first", "95 % interval"]
    return table([*head, "rank correlation with leave one out", "forward", "backward"], body)
