"""How fast is the same work elsewhere? Each peer beside us, in one process and on one thread.

The model is a BERT or a Llama of middle size with random weights, or the embedded `stories` where
words are needed; the input is the same for both, and time is processor time: the least of repeats
taken in turns. Effective attention is that of a longer text. A peer that is not installed, or that
cannot do the work with these versions, is a line that says so and no failure.

    make peers      # installs them in an environment of their own, and writes docs/data/peers.json
    python benchmarks/peers.py [--repeats 9] [--out FILE]
"""

import copy
import tempfile
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from support.measure import bare, begun, bert, drawn, llama, turns, written

import exhibit_a as xa
from exhibit_a.methods.attribution.path_integral import PathPlan, integrate
from exhibit_a.methods.identifiability.projection import project
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.batches import of_one

TOKENS, LONG, POINTS = 64, 512, 5
PROMPT = "Once upon a time there was a little girl named Lily who had a red ball ."
ANSWER = " She liked to play with her ball in the park every day ."
INPUTS = drawn(TOKENS, 200, 8000)

encoder = cache(partial(bert, 384, 6))
decoder = cache(partial(llama, 6, width=384, heads=6, vocabulary=8192, intermediate_size=1024))
stories = cache(partial(xa.load, "stories"))
trace = cache(lambda: xa.capture(encoder(), INPUTS))
long_trace = cache(lambda: xa.capture(encoder(), drawn(LONG, 200, 8000, seed=1)))


def main() -> None:
    given, rows = begun(__doc__, repeats=9), []
    for pairing in PAIRINGS:
        row = measured(pairing, given.repeats)
        rows.append(row)
        told = row.get("missing") or f"{row['peer_seconds'] / row['our_seconds']:.2f} × our time"
        print(f"{row['work']:44} {row['peer']:28} {told}", flush=True)
    written(given.out, {"tokens": TOKENS, "rows": rows})


class Pairing(NamedTuple):
    """The same work by a peer and by us; ``needs`` is the module that the peer is."""

    work: str
    peer: str
    needs: str
    theirs: Callable[[], object]
    ours: Callable[[], object]
    note: str = ""


def measured(pairing: Pairing, repeats: int) -> dict[str, Any]:
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
    spent = turns({"peer_seconds": pairing.theirs, "our_seconds": pairing.ours}, repeats)
    return line | {name: one.least for name, one in spent.items()}


def hf_maps() -> None:
    model = encoder().model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        bare(encoder(), {**INPUTS, "output_attentions": True, "output_hidden_states": True})
    finally:
        model.set_attn_implementation(before)


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


@torch.no_grad()
def lens_cache() -> None:
    lens().run_with_cache(INPUTS["input_ids"])


def nnsight_states() -> None:
    model = import_module("nnsight").NNsight(decoder().model)
    with torch.no_grad(), model.trace(INPUTS["input_ids"]):
        for layer in model.model.layers:
            layer.output.save()


def captum_attention(*, gap: bool = False) -> None:
    def answer(maps: torch.Tensor) -> torch.Tensor:
        last = trace().sites[-1].index
        output = xa.replay(trace(), xa.edits.replace(last, maps), copies=len(maps))
        return torch.softmax(output.logits, -1)[:, 0]

    maps = trace().attention[-1][None]
    how = {"n_steps": POINTS, "method": "gausslegendre", "internal_batch_size": POINTS}
    attribution = import_module("captum.attr").IntegratedGradients(answer)
    attribution.attribute(maps, torch.zeros_like(maps), return_convergence_delta=gap, **how)


def our_attention() -> None:
    target, batch = xa.choose_target(trace(), label=0), of_one(trace())
    whole, answer = at_least_float32(target(trace().output).detach()), lambda out, _: target(out)
    how = {"plan": PathPlan("gauss", POINTS), "read": rows_read(batch, target)}
    integrate(batch, trace().sites[-1].index, answer, whole, **how)


def captum_embeddings() -> None:
    model, index = encoder().model, xa.choose_target(trace()).index
    answer = lambda ids: torch.softmax(model(input_ids=ids).logits, -1)[:, index]  # noqa: E731
    layer, ids = model.bert.embeddings.word_embeddings, INPUTS["input_ids"]
    gradients = import_module("captum.attr").LayerIntegratedGradients(answer, layer)
    gradients.attribute(ids, torch.full_like(ids, 103), n_steps=64, internal_batch_size=64)


def svd(full: bool) -> list[torch.Tensor]:
    def projected(maps: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        kept = torch.linalg.svd(values, full_matrices=full)[0][..., : values.shape[-1]]
        return (maps @ kept) @ kept.mT

    return [
        projected(*site) for site in zip(long_trace().attention, long_trace().values, strict=True)
    ]


def projected() -> list[Any]:
    sites = zip(long_trace().attention, long_trace().values, strict=True)
    return [project(*site, long_trace().visible[0]) for site in sites]


def bertviz_page() -> None:
    maps = [maps[None] for maps in trace().attention]
    import_module("bertviz").head_view(maps, list(trace().tokens), html_action="return")


def our_page() -> None:
    with tempfile.TemporaryDirectory() as folder:
        xa.effective_attention(trace()).html(Path(folder) / "page.html")


def inseq_answer(method: str) -> None:
    peer = import_module("inseq").load_model(stories().model, method, tokenizer=stories().tokenizer)
    peer.attribute(PROMPT, PROMPT + ANSWER, show_progress=False)


def flashtrace_span() -> None:
    peer = import_module("flashtrace").FlashTrace(stories().model, stories().tokenizer)
    peer.trace(prompt=PROMPT, target=ANSWER)


def our_answer() -> xa.Trace:
    return xa.capture(stories(), PROMPT, target_text=ANSWER)


def our_span(method: str) -> None:
    xa.companions(our_answer(), methods=[method])


LLAMA = lambda: xa.capture(decoder(), INPUTS)  # noqa: E731
STATES = "maps and states"
ONE_LAYER = f"attention attribution, one layer, {POINTS} points"
MAPS = f"effective attention, {LONG} tokens: maps"
THIN, FULL = "thin float32 SVD of V", "full float32 SVD of V"
PAIRINGS = [
    Pairing(STATES, "transformers, eager", "transformers", hf_maps,
        lambda: xa.capture(encoder(), INPUTS),
        "ours: values and masks too, and checks; a fixed cost for each layer, small beside a "
        "larger model (above)"),
    Pairing(STATES, "TransformerLens run_with_cache", "transformer_lens", lens_cache, LLAMA),
    Pairing(STATES, "nnsight trace", "nnsight", nnsight_states, LLAMA,
        "theirs: states alone, and no map is formed"),
    Pairing(ONE_LAYER, "captum IntegratedGradients", "captum.attr", captum_attention, our_attention,
        "the map is injected by our edit: captum alone cannot reach it; ours: one more pass, for "
        "the completeness gap"),
    Pairing(f"{ONE_LAYER}, and its completeness gap", "captum IntegratedGradients", "captum.attr",
        partial(captum_attention, gap=True), our_attention),
    Pairing("integrated gradients of embeddings, 64 points", "captum LayerIntegratedGradients",
        "captum.attr", captum_embeddings,
        lambda: xa.companions(trace(), methods=["integrated_gradients"])),
    Pairing(MAPS, THIN, "torch", partial(svd, False), projected,
        "theirs: neither ranks nor float64; heads 32 wide, and 64 wide ours is faster (above)"),
    Pairing(MAPS, FULL, "torch", partial(svd, True), projected,
        "theirs: neither ranks nor float64"),
    Pairing(f"effective attention, {LONG} tokens: everything", THIN, "torch", partial(svd, False),
        lambda: xa.effective_attention(long_trace()), "theirs: maps alone"),
    Pairing("page of all heads", "BertViz head_view", "bertviz", bertviz_page, our_page),
    Pairing("attention of an answer", "inseq", "inseq",
        partial(inseq_answer, "attention"), our_answer),
    Pairing("input × gradient of an answer", "inseq", "inseq",
        partial(inseq_answer, "input_x_gradient"), partial(our_span, "gradient_input"),
        "theirs: one pass for each token of the answer"),
    Pairing("answer span", "FlashTrace", "flashtrace", flashtrace_span,
        partial(our_span, "attention_gradient"),
        "another method, attention × gradient, which runs the model backwards; theirs does not"),
    Pairing("answer span", "FlashTrace", "flashtrace", flashtrace_span,
        lambda: xa.contribution_weights(our_answer()),
        "another method, contribution weights, forwards only as theirs"),
]  # fmt: skip


if __name__ == "__main__":
    main()
