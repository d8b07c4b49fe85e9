"""What does a whole answer cost, beside one token of it and beside the model itself?

    python benchmarks/answers.py [--prompt 200] [--answer 49]
    python benchmarks/answers.py --trial FOLDER

1. attention × gradient and contribution weights for an answer of so many tokens and of one, in
   parts of one forward and one backward pass of the bare model over the same tokens;
2. with --trial: a trial of the language model in a folder on some 300 tokens with an answer, its
   forward passes beside what the doctor promised, and its memory beyond the model.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from support.measure import begun, drawn, llama, megabytes, turns

import exhibit_a as xa
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.tap import attention_implementation
from exhibit_a.trace.counting import counting_passes

PEOPLE = 26  # passages of the trial's prompt


def main() -> None:
    given = begun(__doc__, prompt=200, answer=49, trial=Path, repeats=9)
    if given.trial is not None:
        trial(given.trial)
        return
    subject = llama(
        8, width=256, heads=8, vocabulary=512, num_key_value_heads=4, intermediate_size=768
    )
    ids = drawn(given.prompt + given.answer, 3, 512)["input_ids"][0].tolist()
    for said in (1, given.answer):
        before = {"input_ids": torch.tensor([ids[:-said]])}
        trace = xa.capture(subject, before, target_text=tuple(ids[-said:]))
        target = xa.choose_target(trace, "answer")
        ways = {"bare": partial(bare, trace, target)}
        for name in ("attention_gradient", "contribution_weights"):
            ways[name] = partial(xa.companions, trace, methods=[name], target=target)
        spent = turns(ways, given.repeats, warm=1)
        for name, one in list(spent.items())[1:]:
            ratio = one.median / spent["bare"].median
            print(f"{name}, answer of {said}: {ratio:.2f} of one forward and one backward pass")


def bare(trace: xa.Trace, target: xa.Target) -> None:
    """One forward pass of the model itself, and one backward to what its first layer takes."""
    model = trace.subject.model
    with frozen_eval(model), attention_implementation(model, "eager"), torch.enable_grad():
        states = model.get_input_embeddings()(trace.inputs["input_ids"]).requires_grad_()
        output = model(inputs_embeds=states, use_cache=False)
        torch.autograd.grad(target(output).sum(), states)


def trial(folder: Path) -> None:
    """A trial on a long prompt: passes beside those promised, memory, what was left out."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))
    from context import planted

    subject = xa.load(str(folder))
    facts: dict[str, str] = {}
    for seed in range(100, 140):
        for passage in planted(seed).passages:
            facts.setdefault(" ".join(passage.split()[:3]), passage)
    question = planted(100)
    asked = "\n\n".join([*list(facts.values())[:PEOPLE], question.question])
    before = megabytes("VmRSS")
    with counting_passes(subject) as spent:
        message = [{"role": "user", "content": asked}]
        outcome = xa.trial(subject, message, target_text=question.answer)
        passes = spent.forwards
    length = len(outcome.tokens or ())
    known = {one.method: one.forwards for one in xa.diagnose(subject, length=length).methods}
    print(
        f"{length} tokens: {passes:.0f} forward passes, {known['trial']:.0f} promised by the doctor"
    )
    print(f"{megabytes('VmHWM') - before:.0f} MB beyond the model")
    print(f"{outcome.word}: {outcome.verdict}; left out: {dict(outcome.skipped)}")


if __name__ == "__main__":
    main()
