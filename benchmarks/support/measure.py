"""What every benchmark shares: its options, work in turns by processor time, memory, and models.

Processor time on one thread, so that ratios hold on a busy machine; ways that are compared take
turns, so that whatever else the machine does disturbs them alike.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.subject import Subject, load

Ways = Mapping[str, Callable[[], Any]]


def begun(description: str, *positional: str, **options: Any) -> argparse.Namespace:
    """The options of a script, --out among them; from here on there is one quiet thread.

    An option is given by its default: a flag where that is False, several values where it is a
    list, a file where it is Path. A name of ``positional`` is an option without dashes.
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the measurements to this file")
    for name, default in options.items():
        many = isinstance(default, list)
        kind = default if isinstance(default, type) else type(default[0] if many else default)
        how: dict[str, Any] = {"type": kind, "default": None if kind is default else default}
        how |= {"nargs": "*"} if many else {}
        how = {"action": "store_true"} if default is False else how
        parser.add_argument(name if name in positional else f"--{name}", **how)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return parser.parse_args()


class Spent(NamedTuple):
    """What some runs of the same work took, and what the last one made."""

    times: list[float]
    made: Any
    megabytes: float  # the most memory above what was there before

    @property
    def least(self) -> float:
        """The run that was disturbed least."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The middle run."""
        return median(self.times)


def turns(ways: Ways, repeats: int = 3, warm: int = 0) -> dict[str, Spent]:
    """Ways to do the same work, in turns, so many times; the first runs may not count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    peaks, made = dict.fromkeys(ways, 0.0), dict.fromkeys(ways)
    for _ in range(repeats + warm):
        for way, work in ways.items():
            made[way] = None
            forget_peak()
            before, start = megabytes("VmRSS"), time.process_time()
            made[way] = work()
            times[way].append(time.process_time() - start)
            peaks[way] = max(peaks[way], megabytes("VmHWM") - before)
    return {way: Spent(times[way][warm:], made[way], peaks[way]) for way in ways}


def once(work: Callable[[], Any], repeats: int = 1) -> Spent:
    """The same for one way."""
    return turns({"": work}, repeats)[""]


def told(
    title: str, spent: Mapping[str, Spent], unit: str, notes: Mapping[str, str] | None = None
) -> None:
    """A line for every way: the least seconds, and how many times those of one of them."""
    print(f"\n{title}")
    for way, one in spent.items():
        times = f"{one.least:9.3f} s {one.least / spent[unit].least:8.2f} ×"
        print(f"  {way:58} {times}  {(notes or {}).get(way, '')}", flush=True)


def written(out: Path | None, measured: Any) -> None:
    """Measurements as a file, where one was requested."""
    if out is not None:
        out.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


def known(out: Path | None) -> dict[str, Any]:
    """Measurements that are there already."""
    return dict(json.loads(out.read_text("utf-8"))) if out is not None and out.exists() else {}


def alone(*command: str, **environment: str) -> Any:
    """What a process of its own prints as JSON; it has a peak of memory of its own."""
    run = [sys.executable, *command]
    done = subprocess.run(
        run, check=True, capture_output=True, text=True, env=os.environ | environment
    )
    return json.loads(done.stdout)


def forget_peak() -> None:
    """Count the peak of memory from here on, where the system can (Linux)."""
    if (file := Path("/proc/self/clear_refs")).exists():
        file.write_text("5")


def megabytes(name: str) -> float:
    """What Linux says under a name: VmRSS for what is held now, VmHWM for the peak."""
    if not (status := Path("/proc/self/status")).exists():
        return float("nan")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


def bert(width: int = 768, layers: int = 12, kind: Any = None, **config: Any) -> Subject:
    """A BERT with random weights, by default of the size of BERT-base."""
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 4 * width}
    made = transformers.BertConfig(**sizes | {"num_attention_heads": 12, **config})
    return load((kind or transformers.BertForSequenceClassification)(made).eval())


def llama(
    layers: int, *, width: int = 576, heads: int = 9, vocabulary: int = 49152, **config: Any
) -> Subject:
    """A Llama with random weights, and keys and values for every third head."""
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "vocab_size": vocabulary}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": heads // 3}
    made = transformers.LlamaConfig(**{"intermediate_size": 1536, **sizes, **config})
    return load(transformers.LlamaForCausalLM(made).eval())


def drawn(tokens: int, low: int = 1000, high: int = 2000, seed: int = 0) -> dict[str, Tensor]:
    """Ids at random."""
    ids = torch.randint(low, high, (1, tokens), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def bare(subject: Subject, given: Mapping[str, Any]) -> Any:
    """One pass of the model itself."""
    with frozen_eval(subject.model):
        return subject.model(**without_cache(subject.model, given))


WORDS = "the film is a very long but not dull story of two people who never say what they mean"
REVIEW = """a slow , tender film about two brothers who inherit a failing orchard and cannot agree
what to do with it . the older one wants to sell , the younger one to stay , and for most of its
two hours nothing happens that a postcard could not tell . yet the acting is superb : a look
across the kitchen table says more than the script ever does , and when the rain comes at last you
may find that you have held your breath . the music is too sweet , the ending a little neat , and
a subplot about a lost letter should have been left on the floor . still , i would rather watch
these people peel apples than see most heroes save the world . it is honest , it is funny in the
right places , and it trusts us to notice things ."""


def made_up(count: int, lengths: Sequence[int], seed: int = 0) -> list[str]:
    """Texts of words in random order."""
    chance, words = random.Random(seed), WORDS.split()
    return [" ".join(chance.choices(words, k=chance.choice(lengths))) for _ in range(count)]


def by_length(subject: Subject, texts: Iterable[str]) -> dict[int, list[dict[str, Tensor]]]:
    """Encoded texts by how many tokens they have."""
    groups: dict[int, list[dict[str, Tensor]]] = {}
    for text in texts:
        inputs = subject.encode(text, truncate=True)
        groups.setdefault(inputs["input_ids"].shape[1], []).append(inputs)
    return groups
