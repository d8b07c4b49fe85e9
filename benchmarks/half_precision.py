"""What does float32 arithmetic on bfloat16 weights cost? Beside a float32 copy, and bfloat16.

A Llama shape (30 layers, 9 heads, 3 of keys and values, width 576, a vocabulary of 49,152) with
random weights, held in bfloat16, on one thread and by processor time. Each way runs in turn, the
best of three is told, in passes of the float32 copy; memory is the peak above what the held model
takes.

    python benchmarks/half_precision.py
"""

import copy
import time
from collections.abc import Callable

import torch
import transformers
from support.peaks import MEGABYTE, forget_peak, megabytes
from support.quiet import one_quiet_thread
from torch import Tensor

from exhibit_a.subject.guard import frozen_eval

SHAPES = {"14 tokens": (1, 14), "14 tokens × 8": (8, 14), "300 tokens": (1, 300)}


def main() -> None:
    one_quiet_thread()
    torch.manual_seed(0)
    held = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            vocab_size=49152,
        )
    )
    held = held.bfloat16().eval()
    size = sum(weight.nbytes for weight in held.parameters()) / MEGABYTE
    print(f"weights: {size:.0f} MB in bfloat16; a float32 copy takes {2 * size:.0f} MB more")
    for name, (rows, length) in SHAPES.items():
        ids = torch.randint(5, 1000, (rows, length))
        ways: dict[str, Callable[[], Tensor]] = {
            "float32 copy": lambda ids=ids: forward(wide(held), ids, backward=False),
            "held in bfloat16": lambda ids=ids: forward(held, ids, backward=False),
            "bfloat16 arithmetic": lambda ids=ids: forward(held, ids, as_held=True),
        }
        told(name, ways)
    ways = {
        "float32 copy": lambda: forward(wide(held), ids, backward=True),
        "held in bfloat16": lambda: forward(held, ids, backward=True),
    }
    told("300 tokens, and backwards", ways)


_copies: list[transformers.PreTrainedModel] = []


def wide(held: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """A second model in float32, as one would make it."""
    if not _copies:
        _copies.append(copy.deepcopy(held).float())
    return _copies[0]


def forward(
    model: transformers.PreTrainedModel,
    ids: Tensor,
    *,
    backward: bool = False,
    as_held: bool = False,
) -> Tensor:
    with torch.set_grad_enabled(backward), frozen_eval(model, as_held=as_held):
        states = model.get_input_embeddings()(ids).detach().requires_grad_(backward)
        answer = model(inputs_embeds=states, use_cache=False).logits[0, -1].float()
    return torch.autograd.grad(answer.logsumexp(0), states)[0] if backward else answer


def told(name: str, ways: dict[str, Callable[[], Tensor]]) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    peaks, answers = {}, {}
    for _ in range(3):
        for way, work in ways.items():
            forget_peak()
            before, started = megabytes("VmRSS"), time.process_time()
            answers[way] = work()
            seconds[way].append(time.process_time() - started)
            peaks[way] = megabytes("VmHWM") - before
    wanted = answers["float32 copy"]
    unit = min(seconds["float32 copy"])
    print(name)
    for way in ways:
        apart = float((answers[way] - wanted).abs().amax() / wanted.abs().amax())
        print(
            f"  {way:22} {min(seconds[way]) / unit:5.2f} passes, {peaks[way]:6.0f} MB, "
            f"off by {apart:.0e}"
        )


if __name__ == "__main__":
    main()
