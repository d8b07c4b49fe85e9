"""The documentation as a site: complete, strict, and readable without a network."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.chromium import chromium, visit

import exhibit_a
from exhibit_a.commands.main import WRITTEN
from exhibit_a.methods.registry import commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md") if path.name != "README.md")
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LOADED = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed|input)\b[^>]*?\bsrc=[\"']?(?:https?:)?//[^>]*"
    r"|<link\b[^>]*?\bhref=[\"']?(?:https?:)?//[^>]*"
    r"|url\([\"']?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*"
)


def public():
    """The address of every public name; a public module is its own public names."""
    for name in exhibit_a.__all__:
        inner = getattr(getattr(exhibit_a, name), "__all__", None)
        yield from (
            [f"exhibit_a.{name}.{part}" for part in inner] if inner else [f"exhibit_a.{name}"]
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


def test_every_public_name_has_its_place_among_the_api_pages():
    told = re.findall(
        r"^::: (\S+)$", "\n".join(p.read_text("utf-8") for p in (DOCS / "api").glob("*.md")), re.M
    )
    assert sorted(told) == sorted(public())


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_in_the_index(name):
    assert f"]({name})" in (DOCS / "README.md").read_text("utf-8")


def test_every_figure_is_shown():
    told = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *DOCS.glob("*.md")))
    figures = {path.name for path in (DOCS / "figures").iterdir()}
    assert {name for name in figures if f"figures/{name}" not in told} == set()


@pytest.mark.slow
def test_the_site_names_every_public_thing(site):
    anchors = {
        found
        for page in (site / "api").glob("*.html")
        for found in re.findall(r'id="(exhibit_a\.[\w.]+)"', page.read_text("utf-8"))
    }
    assert not [address for address in public() if address not in anchors]
    assert "exhibit_a.HeadVerdict.null_fraction" in anchors


@pytest.mark.slow
def test_a_field_says_what_its_comment_says(site):
    text = (site / "api" / "trial.html").read_text("utf-8")
    assert "Of valid alternatives, total variation, by contribution." in text  # beside it
    assert "Cosine of weights and contributions." in text


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    assert LOADED.search('<script src="https://a.b/c.js">')
    assert LOADED.search('<link rel="stylesheet" href="//a.b/c.css">')
    assert LOADED.search("@font-face{src:url(https://a.b/c.woff2)}")
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    found = {page.name: LOADED.findall(page.read_text("utf-8")) for page in pages}
    assert not {name: loaded for name, loaded in found.items() if loaded}


@pytest.mark.slow
def test_every_page_opens_from_a_folder_without_a_network(site, browser):
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":  # its links are those of a server
            with visit(browser, path.as_uri()) as seen:
                seen.settle()
                assert seen["h1"].count() == 1, path
                assert seen.complaints == [], path
                away = [one for one in seen.requests if not one.startswith(("file:", "data:"))]
                assert not away, path


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_fits_its_window(site, browser, width):
    for name in ("index.html", "notebooks/causal.html", "verdict.html", "api/trial.html"):
        with visit(browser, (site / name).as_uri(), width) as seen:
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.slow
def test_search_finds_a_method_without_a_server(site, browser):
    with visit(browser, (site / "index.html").as_uri()) as seen:
        seen["input.md-search__input"].click()
        seen.page.keyboard.type("null fraction")
        seen.page.wait_for_selector(".md-search-result__item a:has-text('null_fraction')")
        assert seen.complaints == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_kept_with_what_it_said(path):
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    trials = sum("text/html" in output.get("data", {}) for output in outputs)
    assert trials == (path.stem != "passages")
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert path.stat().st_size < 1_500_000


@pytest.mark.slow
def test_the_first_steps_can_be_taken(tmp_path, monkeypatch):
    text = (DOCS / "start.md").read_text("utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, "start.md", "exec"), {})
    assert (tmp_path / "report.html").exists()
    verbs = set(re.findall(r"^exhibit-a (\w+)", text, re.MULTILINE))
    known = {*WRITTEN, *commands()}
    assert len(verbs) >= 5
    assert verbs <= known


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_from_top_to_bottom(path):
    """In a process of its own, since the kernel's libraries warn about themselves."""
    script = "import json, sys, notebooks, pathlib as p; "
    script += "print(json.dumps(notebooks.executed(p.Path(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=DOCS / "making",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads(done.stdout)["cells"]
    shown = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output.get("name") == "stderr"]
    pages = [one["data"]["text/html"] for one in shown if "text/html" in one.get("data", {})]
    assert len(pages) == (path.stem != "passages")
    for trial in pages:
        assert re.search(r"[Ss]how |shown |never changes", "".join(trial))  # the advice


def test_the_nav_names_each_page_once():
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = yaml.safe_load(config)["nav"]
    named = re.findall(r"[\w/-]+\.(?:md|ipynb)", json.dumps(nav))
    there = [str(p.relative_to(DOCS)) for p in DOCS.rglob("*") if p.suffix in (".md", ".ipynb")]
    assert sorted(named) == sorted(there)
