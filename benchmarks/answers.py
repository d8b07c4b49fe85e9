"""What does a whole answer cost, beside one token of it and beside the model itself?

    python benchmarks/answers.py [--prompt 200] [--answer 49]
    python benchmarks/answers.py --trial FOLDER

1. attention × gradient and contribution weights for an answer of so many tokens and of one, in
   parts of one forward and one backward pass of the bare model over the same tokens;
2. with --trial: a trial of the language model in a folder on some 300 tokens with an answer, its
   forward passes beside what the doctor promised, and its memory beyond the model.

Everything runs on one thread, and seconds are processor seconds, the median of several runs.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from support.quiet import one_quiet_thread
from transformers import LlamaConfig, LlamaForCausalLM

import exhibit_a as xa
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.tap import attention_implementation
from exhibit_a.trace.counting import counting_passes

sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))
REPEATS = 9
WIDTH, LAYERS, HEADS = 256, 8, 8  # of the small model; wide enough that products count
VOCABULARY = 512
PEOPLE = 26  # passages of the trial's prompt


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--prompt", type=int, default=200)
    asked.add_argument("--answer", type=int, default=49)
    asked.add_argument("--trial", type=Path)
    options = asked.parse_args()
    one_quiet_thread()
    if options.trial is not None:
        trial(options.trial)
        return
    span(options.prompt, options.answer)


def span(prompt: int, answer: int) -> None:
    """A span of tokens beside one token, over the same sequence."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
    )
    subject = xa.load(LlamaForCausalLM(config))
    ids = torch.randint(3, VOCABULARY, (prompt + answer,)).tolist()
    print(f"{prompt} tokens before an answer of {answer}, one thread")
    print("| method | answer of | of one forward and one backward pass |")
    print("|---|---|---|")
    ratios: dict[str, list[float]] = {}
    for said in (1, answer):
        before = {"input_ids": torch.tensor([ids[: prompt + answer - said]])}
        trace = xa.capture(subject, before, target_text=tuple(ids[prompt + answer - said :]))
        target = xa.choose_target(trace, "answer")
        plain = seconds(lambda trace=trace, target=target: bare(trace, target))
        for name in ("attention_gradient", "contribution_weights"):
            spent = seconds(
                lambda name=name, t=trace, g=target: xa.companions(t, methods=[name], target=g)
            )
            ratios.setdefault(name, []).append(spent / plain)
            print(f"| {name} | {said} | {spent / plain:.2f} |")
    for name, (one, many) in ratios.items():
        print(f"{name}: {many / one - 1:+.0%} for {answer} tokens beside one")


def bare(trace: xa.Trace, target: xa.Target) -> None:
    """One forward pass of the model itself, and one backward to what its first layer takes."""
    model = trace.subject.model
    with frozen_eval(model), attention_implementation(model, "eager"), torch.enable_grad():
        states = model.get_input_embeddings()(trace.inputs["input_ids"]).requires_grad_()
        output = model(inputs_embeds=states, use_cache=False)
        torch.autograd.grad(target(output).sum(), states)


def seconds(work: Callable[[], Any]) -> float:
    """Processor seconds, the median of several runs after one that is not counted."""
    work()
    spent = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return median(spent)


def trial(folder: Path) -> None:
    """A trial on a long prompt: passes beside those promised, memory, what was left out."""
    from context import planted

    subject = xa.load(str(folder))
    facts: dict[str, str] = {}
    for seed in range(100, 140):
        for passage in planted(seed).passages:
            facts.setdefault(" ".join(passage.split()[:3]), passage)
    question = planted(100)
    asked = "\n\n".join([*list(facts.values())[:PEOPLE], question.question])
    before = gigabytes("VmRSS")
    with counting_passes(subject) as spent:
        outcome = xa.trial(
            subject,
            [{"role": "user", "content": asked}],
            target_text=question.answer,
            progress=lambda stage, *_: print(
                f"{stage}: after {spent.forwards:.0f} passes, {gigabytes('VmHWM') - before:.2f} GB",
                flush=True,
            ),
        )
        passes = spent.forwards
    length = len(outcome.tokens or ())
    promised = next(
        estimate.forwards
        for estimate in xa.diagnose(subject, length=length).methods
        if estimate.method == "trial"
    )
    print(f"{length} tokens: {passes:.0f} forward passes, {promised:.0f} promised by the doctor")
    print(f"{gigabytes('VmHWM') - before:.2f} GB beyond the model")
    print(f"{outcome.word}: {outcome.verdict}")
    for stage, reason in outcome.skipped.items():
        print(f"left out, {stage}: {reason}")


def gigabytes(what: str) -> float:
    """Memory of this process as the system knows it; the peak where it does not say."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1e6


if __name__ == "__main__":
    main()
