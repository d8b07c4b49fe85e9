"""The same sentence in BertViz, Inseq, Captum and here: lines of code, what comes out, screenshots.

    python studies/peers.py [--libraries FOLDER | --write]

``--write`` writes the page again from what was measured before (docs/data/side-by-side.json). Runs
in an environment that has them (pip install bertviz inseq captum). BertViz's page asks a content
delivery network for its scripts; ``--libraries`` is a folder of npm packages (d3 5.7.0, jquery,
requirejs) that answers in its place. Writes docs/peers.md and docs/figures/peer-*.png.

Every number on the page is measured here: lines, bytes, processor time, files that a page asks a
network for, methods that a library has. Where a snippet ends in an error, the page says which.
"""

import argparse
import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Browser, Route, sync_playwright
from screenshots import FLAGS, small

import exhibit_a as xa

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/peers.md"
DATA = ROOT / "docs/data/side-by-side.json"
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
        "Every head of every layer as lines; the stronger the weight, the darker the line.",
        "Lines that answer the pointer at once; a whole layer in one drawing; known by everybody.",
        "Its page grows {grows:.0f}-fold with {times} times the text; weights are not tested.",
    ),
    "Captum": (
        "One score for each token, with true and predicted label.",
        "{captum} attribution classes for any torch module, well tested; also images and tables.",
        "Forward function, baseline and special tokens are yours to get right; tokens, not words.",
    ),
    "Inseq": (
        "One score for each pair of prompt token and generated token.",
        "Made for generation: whole outputs in one call, contrastive targets, a console view.",
        "No classifiers; a tokenizer that writes a beginning token needs `skip_special_tokens`.",
    ),
    "Exhibit A": (
        "Advice, answer, words, a verdict for every head, and which pictures may be shown.",
        "Says whether a map is evidence, and by which test; words as written; offline.",
        "{slower:.0f} times the processor time of the quickest; {ours} attributions by name.",
    ),
}


HEAD = f"""# Side by side

*Written by `studies/peers.py`; do not edit it by hand.*

The sentence “{TEXT}” in four tools, each used as its own documentation says.
BertViz, Captum and Exhibit A read `sentiment`, a classifier. Inseq reads language models only, so
it gets `stories`.

Processor time is that of the snippet with loading the model, in one thread, after torch and
transformers were imported. The last two columns are the size of what comes out: for the sentence,
and for a text that repeats it {TIMES} times.

| tool | version | lines of code | processor time | asks a network | one sentence | {TIMES} times |
|---|---|---|---|---|---|---|
"""


@dataclass
class Found:
    """How large a snippet's page is, how long it took, and what the page asks a network for."""

    version: str
    seconds: float
    problem: str = ""
    size: int = 0  # bytes, and of the longer text
    longer: int = 0
    asked: int = 0  # files


def lines_of(code: str) -> int:
    """Lines that somebody has to write; empty ones are not counted."""
    return sum(bool(line.strip()) for line in code.splitlines())


def ran(name: str, folder: Path, text: str = TEXT) -> tuple[str, Found]:
    """What a snippet made, or the error it ended with."""
    models = {"MODEL": str(folder / "sentiment"), "STORIES": str(folder / "stories"), "TEXT": text}
    started, release = time.process_time(), version(PACKAGES[name])
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            exec(compile(SNIPPETS[name], name, "exec"), models)
    except Exception as problem:  # the page tells which peer did not run, and why
        said = f"{type(problem).__name__}: {problem}".splitlines()[0].rstrip(":")
        return "", Found(release, time.process_time() - started, said)
    html = str(models["html"])
    return html, Found(release, time.process_time() - started, size=len(html.encode()))


def counted() -> dict[str, int]:
    """How many attributions two of the libraries have."""
    import captum.attr

    from exhibit_a.methods.registry import attributions

    base, known = captum.attr.Attribution, vars(captum.attr).values()
    kinds = [kind for kind in known if isinstance(kind, type) and issubclass(kind, base)]
    return {"captum": len(kinds), "ours": len(attributions())}


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


def written(found: dict[str, Found], counts: dict[str, int]) -> str:
    """The page."""
    bertviz, ours = found["BertViz"], found["Exhibit A"]
    numbers = counts | {
        "times": TIMES,
        "grows": bertviz.longer / max(bertviz.size, 1),
        "slower": ours.seconds / min(one.seconds for one in found.values()),
    }
    rows, parts = list[str](), list[str]()
    for name, one in found.items():
        code, (tells, better, watch) = SNIPPETS[name], SAYS[name]
        asks = f"for {one.asked} files" if one.asked else "no"
        sizes = f"did not run: {one.problem} |"
        if not one.problem:
            sizes = f"{size(one.size)} | {size(one.longer)}"
        rows.append(f"| {name} | {one.version} | {lines_of(code)} | {one.seconds:.1f} s | {asks} | {sizes} |")
        shown = f"![{name} on the same sentence](figures/{figure(name)})\n\n" if one.size else ""
        parts.append(
            f"## {name}\n\n{tells}\n\n```python{code}```\n\n{shown}"
            f"*Better than the others:* {better.format(**numbers)}\n\n"
            f"*Watch out:* {watch.format(**numbers)}\n"
        )
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(parts)


def size(count: int) -> str:
    """Bytes, as people say them."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def figure(name: str) -> str:
    """The file of a screenshot."""
    return f"peer-{name.lower().replace(' ', '-')}.png"


def measured(libraries: Path | None) -> dict[str, Found]:
    """Run every snippet on both texts, and take a picture of what it made of the sentence."""
    found = dict[str, Found]()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for name in ("sentiment", "stories"):
            subject = xa.load(name)
            subject.model.save_pretrained(Path(folder) / name)
            subject.tokenizer.save_pretrained(Path(folder) / name)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in SNIPPETS:
            html, one = ran(name, Path(folder))
            if html:
                one.asked = pictured(browser, html, libraries, FIGURES / figure(name))
                one.longer = ran(name, Path(folder), " ".join([TEXT] * TIMES))[1].size
            print(name, one, flush=True)
            found[name] = one
        browser.close()
    return found


def main() -> None:
    """Measure, unless only the page is to be written again, and write it."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--libraries", type=Path)
    asked.add_argument("--write", action="store_true")
    options = asked.parse_args()
    if not options.write:
        found = {name: asdict(one) for name, one in measured(options.libraries).items()}
        stored = json.dumps({"found": found, "counts": counted()}, indent=1)
        DATA.write_text(f"{stored}\n", encoding="utf-8")
    stored = json.loads(DATA.read_text("utf-8"))
    found = {name: Found(**one) for name, one in stored["found"].items()}
    PAGE.write_text(written(found, stored["counts"]), encoding="utf-8")


if __name__ == "__main__":
    main()
