"""Write docs/context.md, with the tables of the study (``studies/context.py``) from docs/data.

``make map`` runs it; a test sees that the page is what the files give. A part of the study that has
not been run is named as such.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from exhibit_a.numerics.intervals import wilson

ROOT = Path(__file__).parents[2]
PAGE, DATA = ROOT / "docs/context.md", ROOT / "docs/data"
MISSING = "*Not measured yet.*"
WANTED = 100  # prompts
NAMES = {
    "leave_one_out": "leave one out (referee)",
    "regression": "regression over 32 random halves (referee)",
    "attention_gradient": "attention × gradient",
    "relevance": "relevance",
    "gradient_input": "gradient × input",
    "contribution_weights": "contribution weights",
    "mean_attention": "mean attention of all heads",
    "self_attribution": "self-attribution",
    "reliance_path": "reliance, along a path of at most 60 points",
}
DEAR = ("regression", "self_attribution", "reliance")  # run on the first of the prompts
HEADING = "| method | prompts | evidence first | 95 % interval | rank correlation with leave one out | forward | backward |"


def page() -> str:
    """The whole page."""
    return (TEXT.replace("PLANTED", planted()).replace("NEEDLESS", needless()).rstrip()) + "\n"


def rows(name: str) -> list[dict[str, Any]]:
    """The prompts of one part of the study; none if it was not run."""
    file = DATA / f"context-{name}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def planted() -> str:
    """How often each method puts the passage with the fact first."""
    cheap, dear = rows("planted"), [row for part in DEAR for row in rows(part)]
    if not cheap:
        return MISSING
    table = [HEADING, "|---|---|---|---|---|---|---|"]
    for name, label in NAMES.items():
        seen = [row for row in [*cheap, *dear] if name in row["first"]]
        if name == "leave_one_out":
            seen = cheap
        if not seen:
            continue
        hits = sum(row["first"][name] == row["evidence"] for row in seen)
        ranks = [row["spearman"][name] for row in seen if name in row["spearman"]]
        forward = round(mean(row["passes"][name][0] for row in seen))
        backward = round(mean(row["passes"][name][1] for row in seen))
        agreed = f"{mean(ranks):.2f}" if ranks else ""
        table.append(
            f"| {label} | {len(seen)} | {hits / len(seen):.0%} | {interval(hits, len(seen))} | "
            f"{agreed} | {forward} | {backward} |"
        )
    partial = (
        f"\n\n**{len(cheap)} of {WANTED} prompts have been run so far**; the intervals are as wide as that."
        if len(cheap) < WANTED
        else ""
    )
    return "\n".join(table) + partial


def needless() -> str:
    """How often an answer that needs no passage is said to rest on one."""
    seen = rows("needless")
    if not seen:
        return MISSING
    wrong = sum(bool(row["rests_on"]) for row in seen)
    return (
        f"Of {len(seen)} such prompts {wrong} are said to rest on a passage ({wrong / len(seen):.0%}, "
        f"95 % interval {interval(wrong, len(seen))})."
    )


def interval(hits: int, count: int) -> str:
    """Wilson's interval of a share, in per cent."""
    low, high = (float(end) for end in wilson(torch.tensor(hits / count), count))
    return f"{low:.0%} – {high:.0%}"


TEXT = """# Which passage did the answer rest on?

*Written by `make map` from the data of the study; do not edit it by hand.*

A language model is asked a question with passages in front of it. Which of them does its answer owe itself to, and is it
any of them at all?

```python
stories = xa.load("stories")  # or a chat model: its template is used
facts = ["Tom has a red ball.", "Lily has a blue kite.", "The dog likes to run."]
found = xa.context_attribution(
    stories,
    "Lily went to the park. She played with her",
    facts,
    answer=" blue kite",
    template="{passages}\\n\\n{question}",
)
found.verdict  # 'The answer rests on passage 2 (… times as likely with it) …'
found.leave_one_out  # what the answer loses without each passage, in log-probability
found.scores  # by method: a score for each passage
found.agreement  # of every method with every referee
found.html("page.html")  # passages shaded, sentence by sentence
```

```
exhibit-a context "Who has the kite?" notes.txt --model FOLDER --html page.html
exhibit-a context "Who has the kite?" "Tom has a ball." "Lily has a kite." --answer "Lily" --json
```

Passages come from the command line or from a file: text with blank lines between them, TSV, CSV, JSONL or Parquet.

![The page of a question with its passages](figures/page-context.png)

## What is compared

**Methods** look at one pass over the whole prompt. Any attribution to tokens will do, ours or one of your own; its scores
for the log-probability of the whole answer are summed over the tokens of every sentence and every passage. A token belongs
to the sentence in which its first character stands, counted in the text as it was written.

**Referees** ask again without some of the passages, which are left out as if they had never been there.

* *Leave one out*: what the answer loses without each passage, log p(answer | all) − log p(answer | all but one).
* *Regression* (ContextCite, Cohen-Wang et al., 2024): the answer with random halves of the passages, and a Lasso over which
  of them were there (α = 0.01 on standardised presence, per token of the answer). Where there are no more subsets than samples,
  all are asked. ContextCite fits log p/(1 − p); here it is log p, so that both referees speak the same unit. It needs
  scikit-learn (`pip install 'exhibit-a[compare]'`), or `samples=0` leaves it out.

`agreement` is the rank correlation over passages, and whether both put the same passage first. `predicts` is the rank
correlation between the answers to the random halves and what a method's scores of the passages kept add up to. The passes of
everything are counted as they run (`passes`).

## None of them

The answer is also read without any passage. It *needs* the passages if it is more than twice as likely with them
(log p falls by more than log 2), and a passage if it loses more than that without it alone.

* It needs none: `rests_on` is empty, and the scores of the passages mean nothing, however large they are.
* It needs them, and none of them alone: some stand in for each other if they add more than log 2 in the regression. If none
  does, it is *none of them by itself*: passages change an answer by their mere presence too, their form and their topic,
  and that is not what one of them says.

## Planted evidence

Twelve passages about made-up people, one of which holds the fact that is asked for (SmolLM2-135M-Instruct, about 150 tokens;
`studies/context.py`, seeds from 2000). The answer is that fact, in a sentence. How often is its passage first?

PLANTED

## Needless passages

The same passages in front of a question that everyone can answer (*What is the capital of France?*), and its right answer.

NEEDLESS

## Limits

* Leaving out changes more than the passage: its neighbours move together. It is what would have happened, not what did.
* The rule of log 2 is a convention. `need` and `leave_one_out` are there for another.
* Methods differ in unit: contribution weights and attention are no log-probabilities. Compare ranks, not sizes.
* Two passages that say the same hide each other from leave one out, and share their score in every method.
* One stack of self-attention: models with an encoder and a decoder are refused.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
