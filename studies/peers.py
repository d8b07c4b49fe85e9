"""The same sentence in BertViz, Inseq, Captum and here: lines of code, what comes out, screenshots.

    python studies/peers.py [--libraries FOLDER]

Runs in an environment that has them (pip install bertviz inseq captum). BertViz's page asks a
content delivery network for its scripts; ``--libraries`` is a folder of npm packages (d3 5.7.0,
jquery, requirejs) that answers in its place. Writes docs/peers.md and docs/figures/peer-*.png.

Every number on the page is measured here: lines, bytes, processor time, files that a page asks a
network for, methods that a library has. Where a snippet ends in an error, the page says which.
"""

import argparse
import contextlib
import io
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Browser, Route, sync_playwright
from screenshots import FLAGS, small

import exhibit_a as xa

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/peers.md"
FIGURES = ROOT / "docs/figures"
TEXT = "a gripping and beautifully shot film"
SCRIPTS = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}

# Every snippet leaves an HTML text in ``html``; MODEL and STORIES are folders of saved models.
SNIPPETS = {
    "BertViz": """
from bertviz import head_view
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForSequenceClassification.from_pretrained(
    MODEL, output_attentions=True, attn_implementation="eager"
)
inputs = tokenizer(TEXT, return_tensors="pt")
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
html = head_view(model(**inputs).attentions, tokens, html_action="return").data
""",
    "Captum": """
import torch
from captum.attr import LayerIntegratedGradients, visualization
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForSequenceClassification.from_pretrained(MODEL).eval()
inputs = tokenizer(TEXT, return_tensors="pt")
blank = torch.full_like(inputs["input_ids"], tokenizer.pad_token_id)
blank[0, 0], blank[0, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id


def answer(ids):
    return model(ids, attention_mask=inputs["attention_mask"]).logits.softmax(-1)


label = int(answer(inputs["input_ids"]).argmax())
gradients = LayerIntegratedGradients(answer, model.get_input_embeddings())
scores, gap = gradients.attribute(
    inputs["input_ids"], blank, target=label, return_convergence_delta=True
)
scores = scores.sum(-1)[0]
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
name, sure = model.config.id2label[label], answer(inputs["input_ids"])[0, label].item()
record = visualization.VisualizationDataRecord(
    scores / scores.norm(), sure, name, "?", name, scores.sum(), tokens, gap.item()
)
html = visualization.visualize_text([record]).data
""",
    "Inseq": """
import inseq
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(STORIES)
tokenizer = AutoTokenizer.from_pretrained(STORIES)
attributed = inseq.load_model(model, "integrated_gradients", tokenizer=tokenizer)
output = attributed.attribute(
    TEXT, generation_args={"max_new_tokens": 4, "skip_special_tokens": True}
)
html = output.show(display=False, return_html=True)
""",
    "Exhibit A": """
import exhibit_a as xa

page = xa.trial(xa.load(MODEL), TEXT).html("page.html")
html = page.read_text("utf-8")
""",
}
PACKAGES = {"BertViz": "bertviz", "Captum": "captum", "Inseq": "inseq", "Exhibit A": "exhibit-a"}
TIMES = 16  # the longer text is the sentence so often

# What each tells, what it does better than the others, and what to watch out for: opinions, but for
# the numbers, which ``facts`` fills in.
SAYS = {
    "BertViz": (
        "Every head of every layer as lines, one weight a line.",
        "Lines that answer the pointer at once; a whole layer in one drawing; known by everybody.",
        "Its page grows {grows:.0f} times when the text is {times} times as long; no test of the "
        "weights.",
    ),
    "Captum": (
        "One score for each token, with true and predicted label.",
        "{captum} attribution classes for any torch module, well tested; also images and tables.",
        "Forward function, baseline and special tokens are yours to get right; tokens, not words.",
    ),
    "Inseq": (
        "One score for each pair of prompt token and generated token.",
        "Made for generation: whole outputs in one call, contrastive targets, a console view.",
        "No classifiers; attention only of models loaded with eager attention; a tokenizer that "
        "writes a beginning token needs skip_special_tokens.",
    ),
    "Exhibit A": (
        "Advice, answer, words, a verdict for every head, and which pictures may be shown.",
        "Says whether a map is evidence, and by which test; words as written; offline.",
        "{slower:.0f} times the processor time of the quickest; {ours} attributions by name.",
    ),
}


HEAD = f"""# Side by side

*Written by `studies/peers.py`; do not edit it by hand.*

The sentence “{TEXT}” in four tools, each used as its own documentation says. The classifier is
`sentiment`, saved to a folder; Inseq reads language models, so there it is `stories`. Processor time is that of the whole
snippet, imports and loading included, in one process and one thread; the last two columns are what comes out for the
sentence, and for the sentence {TIMES} times.

| tool | version | lines of code | processor time | files asked of a network | one sentence | {TIMES} times |
|---|---|---|---|---|---|---|
"""


@dataclass
class Found:
    """What a snippet made, how long it took, and what its page asked a network for."""

    html: str
    problem: str
    seconds: float
    longer: str = ""  # what it made of the longer text
    asked: int = 0


def lines_of(code: str) -> int:
    """Lines that somebody has to write; empty ones are not counted."""
    return sum(bool(line.strip()) for line in code.splitlines())


def ran(name: str, folder: Path, text: str = TEXT) -> Found:
    """What a snippet made, or the error it ended with."""
    models = {"MODEL": str(folder / "sentiment"), "STORIES": str(folder / "stories"), "TEXT": text}
    started = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            exec(compile(SNIPPETS[name], name, "exec"), models)
    except Exception as problem:  # the page tells which peer did not run, and why
        said = f"{type(problem).__name__}: {problem}".splitlines()[0].rstrip(":")
        return Found("", said, time.process_time() - started)
    return Found(str(models["html"]), "", time.process_time() - started)


def facts(found: dict[str, Found]) -> dict[str, float]:
    """The numbers in the sentences."""
    import captum.attr

    from exhibit_a.methods.registry import attributions

    known = vars(captum.attr).values()
    kinds = [
        one for one in known if isinstance(one, type) and issubclass(one, captum.attr.Attribution)
    ]
    bertviz, ours = found["BertViz"], found["Exhibit A"]
    return {
        "times": TIMES,
        "grows": len(bertviz.longer) / max(len(bertviz.html), 1),
        "captum": len(kinds),
        "ours": len(attributions()),
        "slower": ours.seconds / min(one.seconds for one in found.values()),
    }


def pictured(browser: Browser, html: str, libraries: Path | None, file: Path) -> int:
    """A screenshot of what a snippet made, and how many files it asked a network for."""
    asked = list[str]()
    place = file.with_suffix(".html")
    place.write_text(html if "<html" in html else f"<meta charset=utf-8>{html}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 900, "height": 520})

    def answered(route: Route) -> None:
        asked.append(route.request.url)
        script = SCRIPTS.get(route.request.url.rsplit("/", 1)[-1])
        if libraries is None or script is None:
            route.abort()
        else:
            route.fulfill(path=libraries / script)

    page.route(re.compile("^https:"), answered)
    page.goto(place.as_uri())
    page.wait_for_timeout(2500)
    file.write_bytes(small(page.screenshot()))
    place.unlink()
    page.close()
    return len(set(asked))


def written(found: dict[str, Found]) -> str:
    """The page."""
    rows, parts, numbers = list[str](), list[str](), facts(found)
    for name, one in found.items():
        code, (tells, better, watch) = SNIPPETS[name], SAYS[name]
        sizes = f"{size(one.html)} | {size(one.longer)}"
        if one.problem:
            sizes = f"did not run: {one.problem} | "
        rows.append(
            f"| {name} | {version(PACKAGES[name])} | {lines_of(code)} | {one.seconds:.0f} s "
            f"| {one.asked or 'none'} | {sizes} |"
        )
        shown = f"![{name} on the same sentence](figures/{figure(name)})\n\n" if one.html else ""
        parts.append(
            f"## {name}\n\n{tells}\n\n```python{code}```\n\n{shown}"
            f"*Better than the others:* {better.format(**numbers)}\n\n"
            f"*Watch out:* {watch.format(**numbers)}\n"
        )
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(parts)


def size(html: str) -> str:
    """The bytes of a page, as people say them."""
    count = len(html.encode())
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def figure(name: str) -> str:
    """The file of a screenshot."""
    return f"peer-{name.lower().replace(' ', '-')}.png"


def main() -> None:
    """Run every snippet, take its picture, and write the page."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--libraries", type=Path)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for name in ("sentiment", "stories"):
            subject = xa.load(name)
            subject.model.save_pretrained(Path(folder) / name)
            subject.tokenizer.save_pretrained(Path(folder) / name)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        found = {name: ran(name, Path(folder)) for name in SNIPPETS}
        for name, one in found.items():
            one.longer = ran(name, Path(folder), " ".join([TEXT] * TIMES)).html
            print(name, len(one.html), len(one.longer), one.problem)
            if one.html:
                place = FIGURES / figure(name)
                one.asked = pictured(browser, one.html, options.libraries, place)
        browser.close()
    PAGE.write_text(written(found), encoding="utf-8")


if __name__ == "__main__":
    main()
