"""How much of the model does a corpus run, for methods that run it more than once?

    python benchmarks/corpus_passes.py [--label NAME] [--out docs/data/corpus-passes.json]

Self-attribution (96 texts) and token identifiability (240 texts, maps identity and linear) on the
embedded model: the work of its matrices going forwards, and processor time, both beside one bare
pass over the same texts in batches of one length. With ``PYTHONPATH`` set to the sources of another
version, and its name as the label, that version stands beside in the file.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import torch
from support.measure import begun, by_length, known, made_up, once, written
from torch.nn import functional

import exhibit_a as xa


def main() -> None:
    given = begun(__doc__, label="now", texts=96)
    subject = xa.load("sentiment")
    few = made_up(given.texts, (6, 14, 22))
    many = made_up(given.texts * 5 // 2, range(4, 31))

    def attribute() -> None:
        with tempfile.TemporaryDirectory() as folder:
            xa.corpus.run(subject, few, "self_attribution", Path(folder) / "run")

    def identify() -> None:
        xa.token_identifiability(subject, many, maps=("identity", "linear"))

    rows = {
        "self_attribution": beside(subject, few, attribute),
        "token_identifiability": beside(subject, many, identify),
    }
    for name, row in rows.items():
        print(f"{name}: {row}")
    written(given.out, known(given.out) | {given.label: rows})


def beside(subject: xa.Subject, texts: Sequence[str], run: Callable[[], None]) -> dict[str, float]:
    """A method beside the bare model."""
    groups = by_length(subject, texts).values()

    @torch.no_grad()
    def bare() -> None:
        for same in groups:
            subject.model(**{name: torch.cat([one[name] for one in same]) for name in same[0]})

    work = counted(run) / counted(bare)
    alone, seconds = once(bare, 2).least, once(run, 2).least
    return {"texts": len(texts), "work": work, "time": seconds / alone, "seconds": seconds}


def counted(run: Callable[[], None]) -> float:
    """The multiplications of all linear layers that run forwards."""
    real, work = functional.linear, [0.0]

    def linear(states: torch.Tensor, weight: torch.Tensor, bias: object = None) -> torch.Tensor:
        work[0] += states.numel() * len(weight)
        return real(states, weight, bias)

    with patch.object(functional, "linear", linear):
        run()
    return work[0]


if __name__ == "__main__":
    main()
