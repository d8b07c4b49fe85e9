"""Laws of the attribution tree, on made-up contributions and on models."""

import json
from dataclasses import replace
from itertools import product
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.subjects import subject_of
from support.zoo import FAMILIES

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.self_attribution import SelfAttribution, self_attribution
from exhibit_a.methods.attribution.tree import attribution_tree
from exhibit_a.results.store import read
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.capture import capture

PROPERTY = settings(max_examples=40, deadline=None)
SITE = Site(
    index=0,
    layer=0,
    call=0,
    stack="encoder",
    kind="self",
    heads=2,
    kv_heads=2,
    d_head=1,
    d_query=1,
    causal=False,
    window=None,
    variants=(),
    module="",
    projection=None,
    projection_problem=None,
)


def made_up(layers=4, tokens=6, seed=0, reader=0):
    """Contributions as a model that reads its answer at ``reader`` (or everywhere) gives them."""
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.randn(2, tokens, tokens, generator=generator) for _ in range(layers)]
    if reader is not None:
        scores[-1][:, torch.arange(tokens) != reader] = 0
    sites = tuple(replace(SITE, index=layer, layer=layer, call=layer) for layer in range(layers))
    names = tuple(f"w{i}" for i in range(tokens))
    nothing = torch.zeros(layers)
    return SelfAttribution(
        tokens=names,
        provenance=provenance("made up", "self_attribution"),
        scores=tuple(scores),
        change=nothing,
        gap=nothing,
        points=nothing.long(),
        target="probability of anything",
        sites=sites,
        sequences={"encoder": names},
    )


def shapes():
    return st.tuples(
        st.integers(2, 5), st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([0, 1, None])
    )


ALGORITHM = st.sampled_from(["greedy", "exact"])
THRESHOLD = st.sampled_from([0.0, 0.2, 0.4, 0.8])


@PROPERTY
@given(shapes(), THRESHOLD, ALGORITHM, st.sampled_from([0.0, 0.5]))
def test_it_is_a_tree_that_goes_down(shape, threshold, algorithm, penalty):
    attribution = made_up(*shape)
    tree = attribution_tree(attribution, threshold=threshold, algorithm=algorithm, penalty=penalty)
    children = [edge.child for edge in tree.edges]
    assert len(set(children)) == len(children)
    assert tree.root not in children
    assert tree.root != tree.reader
    entered = {edge.child: edge for edge in tree.edges}
    for edge in tree.edges:
        while edge.parent != tree.root:
            above = entered[edge.parent]
            assert above.layer > edge.layer
            edge = above


@PROPERTY
@given(shapes(), THRESHOLD, ALGORITHM)
def test_every_edge_is_above_the_threshold_and_none_is_the_readers(shape, threshold, algorithm):
    attribution = made_up(*shape)
    tree = attribution_tree(attribution, threshold=threshold, algorithm=algorithm)
    for edge in tree.edges:
        layer = attribution.scores[edge.layer].sum(0)
        others = [row for row in range(len(layer)) if row != tree.reader]
        assert edge.score > threshold * abs(float(layer[others].max())) - 1e-6
        assert edge.score == pytest.approx(float(layer[edge.parent, edge.child]))
        assert edge.parent != tree.reader
        if tree.reader is not None:
            assert edge.layer < len(attribution.scores) - 1


@PROPERTY
@given(shapes(), THRESHOLD, st.sampled_from([0.0, 0.3, 1.0]))
def test_greedy_is_never_better_than_exact(shape, threshold, penalty):
    attribution = made_up(*shape)
    greedy, exact = (
        attribution_tree(attribution, threshold=threshold, penalty=penalty, algorithm=way)
        for way in ("greedy", "exact")
    )
    assert greedy.objective <= exact.objective + 1e-6
    assert greedy.checks["exact objective"] == pytest.approx(exact.objective)
    assert exact.checks["greedy objective"] == pytest.approx(greedy.objective)
    assert exact.checks["exact is proven"]


def best_by_trying_everything(attribution, tree, threshold, penalty):
    layers = len(attribution.scores) - (tree.reader is not None)
    tokens = [t for t in range(len(attribution.tokens)) if t != tree.root]
    choices = {token: [None] for token in tokens}
    for layer in range(layers):
        rows = attribution.scores[layer].sum(0).clone()
        if tree.reader is not None:
            rows[tree.reader] = 0
        line = threshold * float(rows.max().abs())
        for parent, child in (rows > line).nonzero().tolist():
            if parent != child and child != tree.root:
                choices[child].append((layer, parent, float(rows[parent, child])))
    best = 0.0
    for picked in product(*choices.values()):
        entered = {tree.root: layers} | {
            t: edge[0] for t, edge in zip(tokens, picked, strict=True) if edge
        }
        edges = [edge for edge in picked if edge]
        if all(entered.get(parent, -1) > layer for layer, parent, _ in edges):
            best = max(best, sum(score - penalty for *_, score in edges))
    return best


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, None]), st.sampled_from([0.0, 0.7]))
def test_exact_is_the_best_of_all_trees(seed, reader, penalty):
    attribution = made_up(3, 4, seed, reader)
    tree = attribution_tree(attribution, threshold=0.1, penalty=penalty, algorithm="exact")
    best = best_by_trying_everything(attribution, tree, 0.1, penalty)
    assert tree.objective == pytest.approx(best, abs=1e-5)


@PROPERTY
@given(shapes(), ALGORITHM)
def test_a_boundless_penalty_leaves_only_the_root(shape, algorithm):
    attribution = made_up(*shape)
    for penalty in (1e6, float("inf")):
        tree = attribution_tree(attribution, penalty=penalty, algorithm=algorithm)
        assert tree.nodes == (tree.root,)
        assert tree.objective == 0


@PROPERTY
@given(shapes())
def test_a_higher_threshold_never_gives_more(shape):
    attribution = made_up(*shape)
    trees = [attribution_tree(attribution, threshold=t) for t in (0.0, 0.2, 0.4, 0.6, 0.8)]
    counts = [len(tree.edges) for tree in trees]
    assert counts == sorted(counts, reverse=True)
    exact = [tree.checks["exact objective"] for tree in trees]
    assert exact == sorted(exact, reverse=True) or exact == pytest.approx(
        sorted(exact, reverse=True)
    )


def test_greedy_takes_the_first_token_in_reading_order_and_exact_the_stronger_one():
    attribution = made_up(3, 4, reader=None)
    for scores in attribution.scores:
        scores.zero_()
    top, middle, low = attribution.scores[2], attribution.scores[1], attribution.scores[0]
    top[0, 3, 1], top[0, 3, 2] = 1.0, 1.0
    middle[0, 1, 0], middle[0, 2, 0] = 0.5, 1.0
    low[0, 1, 2] = 1.0
    top[0, 1, 1] = 0.1  # a second row counts: nobody is the reader
    greedy = attribution_tree(attribution)
    assert (greedy.root, greedy.reader) == (3, None)
    assert [(e.layer, e.parent, e.child) for e in greedy.edges] == [(2, 3, 1), (2, 3, 2), (1, 1, 0)]
    exact = attribution_tree(attribution, algorithm="exact")
    assert {(e.layer, e.parent, e.child) for e in exact.edges} == {(2, 3, 1), (2, 3, 2), (1, 2, 0)}
    assert greedy.checks["greedy share of exact"] == pytest.approx(2.5 / 3)


@pytest.mark.parametrize(("name", "reader"), [("bert", 0), ("llama", 6), ("bart", 4), ("vit", 0)])
def test_the_reader_is_found_by_looking_not_by_name(name, reader):
    attribution = self_attribution(capture(subject_of(name), FAMILIES[name].inputs()))
    tree = attribution_tree(attribution, threshold=0.1)
    assert tree.reader == reader
    assert len(tree.tokens) == attribution.scores[-2].shape[1]


def test_every_way_to_take_it_along_tells_the_same(tmp_path):
    tree = attribution_tree(made_up(5, 7, seed=3), threshold=0.1)
    assert len(tree.edges) > 2
    said = json.loads(tree.to_json())
    assert [tuple(edge.values()) for edge in said["edges"]] == [
        (edge.layer, edge.parent, edge.child, edge.score) for edge in tree.edges
    ]
    graph = tree.to_networkx()
    assert set(graph.edges) == {(edge.parent, edge.child) for edge in tree.edges}
    assert {graph.nodes[node]["token"] for node in graph} == {f"w{n}" for n in tree.nodes}
    drawing = ElementTree.fromstring(tree.svg())
    assert len(drawing.findall(".//{*}circle")) == len(tree.nodes)
    lines = tree.text().splitlines()
    assert len(lines) == len(tree.nodes)
    assert lines[0].startswith(f"w{tree.root}  → probability")
    again = read(tree.save(tmp_path / "tree.safetensors"))
    assert (again.edges, again.root) == (tree.edges, tree.root)
    tree.plot().clear()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"algorithm": "best"}, "greedy, exact"),
        ({"threshold": 1.0}, r"in \[0, 1\)"),
        ({"penalty": -1.0}, "not negative"),
    ],
)
def test_what_cannot_be_asked_is_said(asked, message):
    with pytest.raises(BadRequestError, match=message):
        attribution_tree(made_up(), **asked)
