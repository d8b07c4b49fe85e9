"""The same sentence in BertViz, Inseq, Captum and here: lines of code, what comes out, screenshots.

    python studies/peers.py [--libraries FOLDER]

Runs in an environment that has them (pip install bertviz inseq captum). BertViz's page asks a
content delivery network for three scripts; ``--libraries`` is a folder of npm packages (d3 5.7.0,
jquery, requirejs) that answers in its place. Writes docs/peers.md and docs/figures/peer-*.png.
"""

import argparse
import contextlib
import io
import shutil
import tempfile
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
output = attributed.attribute(TEXT, generation_args={"max_new_tokens": 4})
html = output.show(display=False, return_html=True)
""",
    "Exhibit A": """
import exhibit_a as xa

page = xa.trial(xa.load(MODEL), TEXT).html("page.html")
html = page.read_text("utf-8")
""",
}
SAYS = {
    "BertViz": (
        "Every head of every layer as lines, one weight a line.",
        "Lines that answer the pointer at once; a whole layer in one drawing; known by everybody.",
        "Needs a network for three scripts; very large at 512 tokens; no test of the weights.",
    ),
    "Captum": (
        "One score for each token, by one of some twenty methods, with true and predicted label.",
        "The widest choice of methods for any torch module, well tested; also images and tables.",
        "Forward function, baseline and special tokens are yours to get right; tokens, not words.",
    ),
    "Inseq": (
        "One score for each pair of prompt token and generated token.",
        "Made for generation: whole outputs in one call, contrastive targets, a console view.",
        "No classifiers; attention only of models loaded with eager attention.",
    ),
    "Exhibit A": (
        "Advice, answer, words, a verdict for every head, and which pictures may be shown.",
        "Says whether a map is evidence, and by which test; words as written; offline.",
        "Takes longer than the others; fewer attributions than Captum; no contrast as in Inseq.",
    ),
}


HEAD = f"""# Side by side

*Written by `studies/peers.py`; do not edit it by hand.*

The sentence “{TEXT}” in four tools, each used as its own documentation says. The classifier is
`sentiment`, saved to a folder; Inseq reads language models, so there it is `stories`.

| tool | lines of code | what comes out | what it tells |
|---|---|---|---|
"""


def lines_of(code: str) -> int:
    """Lines that somebody has to write; empty ones are not counted."""
    return sum(bool(line.strip()) for line in code.splitlines())


def ran(name: str, folder: Path) -> tuple[str, str]:
    """What a snippet made, or the error it ended with."""
    models = {"MODEL": str(folder / "sentiment"), "STORIES": str(folder / "stories"), "TEXT": TEXT}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            exec(compile(SNIPPETS[name], name, "exec"), models)
    except Exception as problem:  # the page tells which peer did not run, and why
        return "", f"{type(problem).__name__}: {problem}".splitlines()[0]
    return str(models["html"]), ""


def pictured(browser: Browser, html: str, libraries: Path | None, file: Path) -> None:
    """A screenshot of what a snippet made."""
    place = file.with_suffix(".html")
    place.write_text(html if "<html" in html else f"<meta charset=utf-8>{html}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 900, "height": 520})

    def answered(route: Route) -> None:
        script = SCRIPTS.get(route.request.url.rsplit("/", 1)[-1])
        if libraries is None or script is None:
            route.abort()
        else:
            route.fulfill(path=libraries / script)

    page.route("https://**", answered)
    page.goto(place.as_uri())
    page.wait_for_timeout(2500)
    file.write_bytes(small(page.screenshot()))
    place.unlink()
    page.close()


def written(found: dict[str, tuple[str, str]]) -> str:
    """The page."""
    rows, parts = list[str](), list[str]()
    for name, (html, problem) in found.items():
        code, (tells, better, watch) = SNIPPETS[name], SAYS[name]
        size = f"{len(html) / 1000:.0f} kB" if html else f"did not run here: {problem}"
        asks = ", asks a network" if "https://cdnjs" in html else ""
        rows.append(f"| {name} | {lines_of(code)} | {size}{asks} | {tells} |")
        shown = f"![{name} on the same sentence](figures/{figure(name)})\n\n" if html else ""
        parts.append(
            f"## {name}\n\n```python{code}```\n\n{shown}"
            f"*Better than the others:* {better}\n\n*Watch out:* {watch}\n"
        )
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(parts)


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
        for name, (html, problem) in found.items():
            print(name, len(html), problem)
            if html:
                pictured(browser, html, options.libraries, FIGURES / figure(name))
        browser.close()
    PAGE.write_text(written(found), encoding="utf-8")


if __name__ == "__main__":
    main()
