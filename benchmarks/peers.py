"""How fast is the same work elsewhere? Each peer beside us, in one process and on one thread.

The model is a BERT or a Llama of middle size with random weights, or the embedded `stories` where
words are needed; the input is the same for both, and time is processor time: the least of three
repeats taken in turns. Effective attention is that of a longer text. A peer that is not installed,
or that cannot do the work with these versions, is a line that says so and no failure.

    make peers      # installs them in an environment of their own, and writes docs/data/peers.json
    python benchmarks/peers.py [--out FILE]
"""

import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from support.quiet import begun

import exhibit_a as xa
from exhibit_a.methods.identifiability.projection import Projection, project
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import Subject

TOKENS, LONG, REPEATS, POINTS = 64, 512, 9, 5
PROMPT = "Once upon a time there was a little girl named Lily who had a red ball ."
ANSWER = " She liked to play with her ball in the park every day ."


class Pairing(NamedTuple):
    """The same work by a peer and by us; ``needs`` is the module that the peer is."""

    work: str
    peer: str
    needs: str
    theirs: Callable[[], object]
    ours: Callable[[], object]
    note: str = ""


def main() -> None:
    out = begun(__doc__)
    rows = []
    for pairing in pairings():
        row = measured(pairing)
        rows.append(row)
        told = row.get("missing") or f"{row['peer_seconds'] / row['our_seconds']:.2f} × our time"
        print(f"{row['work']:44} {row['peer']:28} {told}", flush=True)
    if out:
        out.write_text(json.dumps({"tokens": TOKENS, "rows": rows}, indent=1) + "\n")


def measured(pairing: Pairing) -> dict[str, Any]:
    """One line: both times, or why there is none."""
    line: dict[str, Any] = {"work": pairing.work, "peer": pairing.peer, "note": pairing.note}
    try:
        import_module(pairing.needs)
        pairing.theirs()
    except ImportError:
        return line | {"missing": "not installed"}
    except Exception as problem:  # a peer can fail in any way with versions it was not made for
        reason = str(problem).strip().split("\n")[0][:80]
        return line | {"missing": f"fails: {type(problem).__name__}: {reason}"}
    spent: dict[str, list[float]] = {"peer_seconds": [], "our_seconds": []}
    for _ in range(REPEATS):
        for name, work in (("peer_seconds", pairing.theirs), ("our_seconds", pairing.ours)):
            started = time.process_time()
            work()
            spent[name].append(time.process_time() - started)
    return line | {name: min(times) for name, times in spent.items()}


def pairings() -> Iterator[Pairing]:
    """Everything that is compared."""
    capture = partial(xa.capture, encoder(), inputs())
    yield Pairing(
        "maps and states", "transformers, eager", "transformers", hf_maps, capture,
        "ours: values and masks too, and checks; a fixed cost for each layer, small beside a "
        "larger model (above)",
    )  # fmt: skip
    yield Pairing(
        "maps and states",
        "TransformerLens run_with_cache",
        "transformer_lens",
        lens_cache,
        llama_capture,
    )
    yield Pairing(
        "maps and states",
        "nnsight trace",
        "nnsight",
        nnsight_states,
        llama_capture,
        "theirs: states alone, and no map is formed",
    )
    yield Pairing(
        f"attention attribution, one layer, {POINTS} points",
        "captum IntegratedGradients",
        "captum.attr",
        captum_attention,
        our_attention,
        "the map is injected by our edit: captum alone cannot reach it; ours: one more pass, for "
        "the completeness gap",
    )
    yield Pairing(
        f"attention attribution, one layer, {POINTS} points, and its completeness gap",
        "captum IntegratedGradients",
        "captum.attr",
        partial(captum_attention, gap=True),
        our_attention,
    )
    yield Pairing(
        "integrated gradients of embeddings, 64 points",
        "captum LayerIntegratedGradients",
        "captum.attr",
        captum_embeddings,
        partial(xa.companions, trace(), methods=["integrated_gradients"]),
    )
    project_all = partial(projected, long_trace())
    yield Pairing(
        f"effective attention, {LONG} tokens: maps", "thin float32 SVD of V", "torch",
        partial(svd, full=False), project_all,
        "theirs: neither ranks nor float64; heads 32 wide, and 64 wide ours is faster (above)",
    )  # fmt: skip
    yield Pairing(
        f"effective attention, {LONG} tokens: maps", "full float32 SVD of V", "torch",
        partial(svd, full=True), project_all, "theirs: neither ranks nor float64",
    )  # fmt: skip
    yield Pairing(
        f"effective attention, {LONG} tokens: everything", "thin float32 SVD of V", "torch",
        partial(svd, full=False), partial(xa.effective_attention, long_trace()),
        "theirs: maps alone",
    )  # fmt: skip
    yield Pairing("page of all heads", "BertViz head_view", "bertviz", bertviz_page, our_page)
    yield Pairing(
        "attention of an answer", "inseq", "inseq", partial(inseq_answer, "attention"), our_answer
    )
    yield Pairing(
        "input × gradient of an answer", "inseq", "inseq",
        partial(inseq_answer, "input_x_gradient"), partial(our_span, "gradient_input"),
        "theirs: one pass for each token of the answer",
    )  # fmt: skip
    yield Pairing(
        "answer span", "FlashTrace", "flashtrace", flashtrace_span,
        partial(our_span, "attention_gradient"),
        "another method, attention × gradient, which runs the model backwards; theirs does not",
    )  # fmt: skip
    yield Pairing(
        "answer span", "FlashTrace", "flashtrace", flashtrace_span, our_contributions,
        "another method, contribution weights, forwards only as theirs",
    )  # fmt: skip


@cache
def encoder() -> Subject:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return xa.load(transformers.BertForSequenceClassification(config).eval())


@cache
def decoder() -> Subject:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=8192, hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=2, intermediate_size=1024,
    )  # fmt: skip
    return xa.load(transformers.LlamaForCausalLM(config).eval())


@cache
def inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(200, 8000, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@cache
def trace() -> xa.Trace:
    return xa.capture(encoder(), inputs())


@cache
def long_trace() -> xa.Trace:
    ids = torch.randint(200, 8000, (1, LONG), generator=torch.Generator().manual_seed(1))
    return xa.capture(encoder(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


@cache
def stories() -> Subject:
    return xa.load("stories")


def hf_maps() -> None:
    model = encoder().model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad(), frozen_eval(model):
            model(**inputs(), output_attentions=True, output_hidden_states=True)
    finally:
        model.set_attn_implementation(before)


def llama_capture() -> xa.Trace:
    return xa.capture(decoder(), inputs())


@cache
def lens() -> Any:
    """The same model inside TransformerLens, which reads a tokenizer from where it was saved."""
    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    model = copy.deepcopy(decoder().model)  # it is changed from within
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        stories().tokenizer.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return bridge.boot_transformers(folder, hf_model=model, tokenizer=tokenizer, device="cpu")


def lens_cache() -> None:
    with torch.no_grad():
        lens().run_with_cache(inputs()["input_ids"])


def nnsight_states() -> None:
    model = import_module("nnsight").NNsight(decoder().model)
    with torch.no_grad(), model.trace(inputs()["input_ids"]):
        for layer in model.model.layers:
            layer.output.save()


def captum_attention(*, gap: bool = False) -> None:
    attribution = import_module("captum.attr").IntegratedGradients(_answer)
    maps = trace().attention[-1][None]
    attribution.attribute(
        maps,
        torch.zeros_like(maps),
        n_steps=POINTS,
        method="gausslegendre",
        internal_batch_size=POINTS,
        return_convergence_delta=gap,
    )


def _answer(maps: torch.Tensor) -> torch.Tensor:
    last = trace().sites[-1].index
    output = xa.replay(trace(), xa.edits.replace(last, maps), copies=len(maps))
    return torch.softmax(output.logits, -1)[:, 0]


def our_attention() -> None:
    from exhibit_a.methods.attribution.path_integral import Plan, integrate
    from exhibit_a.numerics.precision import at_least_float32
    from exhibit_a.trace.answer_rows import rows_read
    from exhibit_a.trace.batches import of_one

    target, batch = xa.choose_target(trace(), label=0), of_one(trace())
    whole = at_least_float32(target(trace().output).detach())
    integrate(
        batch,
        trace().sites[-1].index,
        lambda out, _: target(out),
        whole,
        plan=Plan("gauss", POINTS),
        read=rows_read(batch, target),
    )


def captum_embeddings() -> None:
    model, index = encoder().model, xa.choose_target(trace()).index

    def answer(ids: torch.Tensor) -> torch.Tensor:
        return torch.softmax(model(input_ids=ids).logits, -1)[:, index]

    layer = model.bert.embeddings.word_embeddings
    gradients = import_module("captum.attr").LayerIntegratedGradients(answer, layer)
    ids = inputs()["input_ids"]
    gradients.attribute(ids, torch.full_like(ids, 103), n_steps=64, internal_batch_size=64)


def svd(*, full: bool) -> list[torch.Tensor]:
    return [_by_svd(*site, full) for site in _sites(long_trace())]


def _by_svd(maps: torch.Tensor, values: torch.Tensor, full: bool) -> torch.Tensor:
    basis, _, _ = torch.linalg.svd(values, full_matrices=full)
    kept = basis[..., : values.shape[-1]]
    return (maps @ kept) @ kept.mT


def projected(trace: xa.Trace) -> list[Projection]:
    return [project(*site, trace.visible[0]) for site in _sites(trace)]


def _sites(trace: xa.Trace) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(trace.attention, trace.values, strict=True))


def bertviz_page() -> None:
    view = import_module("bertviz").head_view
    maps = [maps[None] for maps in trace().attention]
    view(maps, list(trace().tokens), html_action="return")


def our_page() -> None:
    with tempfile.TemporaryDirectory() as folder:
        xa.effective_attention(trace()).html(Path(folder) / "page.html")


def inseq_answer(method: str) -> None:
    peer = import_module("inseq").load_model(stories().model, method, tokenizer=stories().tokenizer)
    peer.attribute(PROMPT, PROMPT + ANSWER, show_progress=False)


def our_answer() -> xa.Trace:
    return xa.capture(stories(), PROMPT, target_text=ANSWER)


def flashtrace_span() -> None:
    peer = import_module("flashtrace").FlashTrace(stories().model, stories().tokenizer)
    peer.trace(prompt=PROMPT, target=ANSWER)


def our_span(method: str) -> None:
    xa.companions(our_answer(), methods=[method])


def our_contributions() -> None:
    xa.contribution_weights(our_answer())


if __name__ == "__main__":
    main()
