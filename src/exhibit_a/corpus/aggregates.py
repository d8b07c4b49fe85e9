"""How are all rows of a run summed up without being in memory together?

For every number, over examples (and for numbers of heads: for each site and head):

1. count, mean and variance, joined shard by shard (Chan, Golub & LeVeque, 1983);
2. quantiles from a histogram whose buckets grow by a fixed factor, so that every quantile is within
   1 % of its true value (Masson, Rim & Lee, 2019, DDSketch); sizes below 1e-6 count as zero. It is
   exact where 1 % is less than half a step, as of counts below 50, and where it is the least or
   the largest number of all: a share that is 1 for most examples has the median 1;
3. a 95 % interval of the mean by the Poisson bootstrap: in replicate b an example counts as often
   as a Poisson(1) number says, and that number comes from a hash of the example's id. So intervals
   do not depend on the order of the examples or on the engine, and two runs over the same examples
   are resampled alike: the difference of their means has an interval, too (``read.py``).

Shards are added in their order, on one thread: the same rows give the same bytes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from exhibit_a.numerics.parallel import one_thread

REPLICATES = 200
INTERVAL = (0.025, 0.975)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ACCURACY = 0.01  # of quantiles, relative
SMALLEST, LARGEST = 1e-6, 1e6
NEAR = 1e-6  # relative: rounding alone does not make two numbers
ROUNDED = 0.5 / ACCURACY  # whole numbers below it are nearer to their quantile than any other

_GROWTH = np.log((1 + ACCURACY) / (1 - ACCURACY))
_SIDE = int(np.ceil(np.log(LARGEST / SMALLEST) / _GROWTH)) + 1  # buckets for each sign
_WIDTH = 2 * _SIDE + 1

Numbers = np.ndarray
Cell = str | int | float | None  # of the table of aggregates


def poisson_weights(ids: Sequence[str], replicates: int = REPLICATES) -> Numbers:
    """How often each example counts in each replicate, (example, replicate)."""
    drawn = b"".join(
        hashlib.shake_128(name.encode("utf-8", "surrogatepass")).digest(2 * replicates)
        for name in ids
    )
    numbers = np.frombuffer(drawn, dtype="<u2").reshape(len(ids), replicates)
    weights: Numbers = _poisson_table()[numbers]
    return weights


@cache
def _poisson_table() -> Numbers:
    """The Poisson(1) number for each of 65,536 equally likely draws."""
    terms = np.cumprod(np.concatenate([[np.exp(-1.0)], 1 / np.arange(1, 12)]))
    chances = (np.arange(2**16) + 0.5) / 2**16
    return np.searchsorted(np.cumsum(terms), chances).astype(np.float64)


@dataclass(eq=False)
class Stream:
    """Running statistics of several columns; NaN and infinite values are left out."""

    columns: int
    count: Numbers = field(init=False)
    mean: Numbers = field(init=False)
    scatter: Numbers = field(init=False)
    low: Numbers = field(init=False)
    high: Numbers = field(init=False)
    least: Numbers = field(init=False)  # how many numbers are the lowest
    most: Numbers = field(init=False)  # and how many the highest
    whole: Numbers = field(init=False)  # has it no fractions?
    buckets: Numbers = field(init=False)
    weighted: torch.Tensor = field(init=False)
    weight: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.count, self.mean, self.scatter = (np.zeros(self.columns) for _ in range(3))
        self.least, self.most = np.zeros(self.columns), np.zeros(self.columns)
        self.low, self.high = np.full(self.columns, np.inf), np.full(self.columns, -np.inf)
        self.whole = np.ones(self.columns, dtype=bool)
        self.buckets = np.zeros((self.columns, _WIDTH), dtype=np.int64)
        self.weighted = torch.zeros(REPLICATES, self.columns, dtype=torch.float64)
        self.weight = torch.zeros_like(self.weighted)

    def add(self, rows: Numbers, weights: Numbers) -> None:
        """Add the numbers of several examples, (example, column), and their weights."""
        finite = np.isfinite(rows)
        values = np.where(finite, rows, 0.0)
        count = finite.sum(0)
        mean = values.sum(0) / np.maximum(count, 1)
        scatter = (np.where(finite, values - mean, 0.0) ** 2).sum(0)
        total = np.maximum(self.count + count, 1)
        step = np.where(count > 0, mean - self.mean, 0.0)
        self.scatter += scatter + step**2 * self.count * count / total
        self.mean += step * count / total
        self.count += count
        low = np.minimum(self.low, np.where(finite, rows, np.inf).min(0, initial=np.inf))
        high = np.maximum(self.high, np.where(finite, rows, -np.inf).max(0, initial=-np.inf))
        self.least = _copies(rows, low) + np.where(_near(self.low, low), self.least, 0)
        self.most = _copies(rows, high) + np.where(_near(self.high, high), self.most, 0)
        self.low, self.high = low, high
        self.whole &= (values == np.rint(values)).all(0)
        column = np.broadcast_to(np.arange(self.columns), rows.shape)[finite]
        np.add.at(self.buckets, (column, _bucket(rows[finite])), 1)
        with one_thread():
            drawn = torch.from_numpy(weights).mT
            self.weighted += drawn @ torch.from_numpy(values)
            self.weight += drawn @ torch.from_numpy(finite.astype(np.float64))

    @property
    def replicates(self) -> torch.Tensor:
        """The mean of every column in every replicate, (replicate, column)."""
        return self.weighted / self.weight  # without examples: NaN

    def quantile(self, share: float) -> Numbers:
        """The number below which a share of the numbers lies, for every column."""
        rank = share * np.maximum(self.count - 1, 0)
        below = self.buckets.cumsum(1)
        bucket = (below > rank[:, None]).argmax(1)
        centre = np.clip(_centre(bucket), self.low, self.high)
        centre = np.where(self.whole & (np.abs(centre) < ROUNDED), np.rint(centre), centre)
        place = np.floor(rank)
        centre = np.where(place >= self.count - self.most, self.high, centre)
        centre = np.where(place < self.least, self.low, centre)
        return np.where(self.count > 0, centre, np.nan)

    def summary(self) -> dict[str, Numbers]:
        """Every statistic of every column."""
        spread = np.where(self.count > 1, self.scatter / np.maximum(self.count - 1, 1), np.nan)
        ends = torch.quantile(
            self.replicates, torch.tensor(INTERVAL, dtype=torch.float64), dim=0
        ).numpy()
        counted = self.count > 0
        return {
            "count": self.count.astype(np.int64),
            "mean": np.where(counted, self.mean, np.nan),
            "variance": spread,
            "interval_low": ends[0],
            "interval_high": ends[1],
            "minimum": np.where(counted, self.low, np.nan),
            **{f"q{round(100 * share):02d}": self.quantile(share) for share in QUANTILES},
            "maximum": np.where(counted, self.high, np.nan),
        }


def _near(numbers: Numbers, extreme: Numbers) -> Numbers:
    near: Numbers = np.isclose(numbers, extreme, rtol=NEAR, atol=0.0)
    return near


def _copies(rows: Numbers, extreme: Numbers) -> Numbers:
    """How many numbers of each column are its extreme, up to rounding; infinite ones are none."""
    copies: Numbers = (_near(rows, extreme) & np.isfinite(rows)).sum(0)
    return copies


def _bucket(numbers: Numbers) -> Numbers:
    """The bucket of every number: negative ones, zero, positive ones, in ascending order."""
    size = np.clip(np.abs(numbers), SMALLEST, LARGEST)
    step = np.ceil(np.log(size / SMALLEST) / _GROWTH).astype(np.int64)
    signed = np.where(np.abs(numbers) < SMALLEST, 0, np.sign(numbers).astype(np.int64) * (step + 1))
    return _SIDE + np.clip(signed, -_SIDE, _SIDE)


def _centre(bucket: Numbers) -> Numbers:
    signed = bucket - _SIDE
    step = np.abs(signed) - 1
    size = SMALLEST * np.exp(step * _GROWTH) * (1 - ACCURACY)
    return np.where(signed == 0, 0.0, np.sign(signed) * size)


def ids_digest(before: int, ids: Sequence[str]) -> int:
    """The digest of a set of ids so far with more ids added; their order does not matter."""
    for name in ids:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        before = (before + int.from_bytes(digest)) % 2**128
    return before


@dataclass(eq=False)
class Table:
    """The statistics of one kind of row, by name: of examples, or of every head."""

    name: str
    places: list[tuple[int, int]] | None = None  # (site, head), for numbers of heads
    statistics: list[str] = field(default_factory=list)
    stream: Stream | None = None

    def add(self, columns: dict[str, Numbers], weights: Numbers) -> None:
        """Add a shard: every statistic as (example,) or (example, place)."""
        if not columns:
            return
        if self.stream is None:
            self.statistics = list(columns)
            self.stream = Stream(len(columns) * len(self.places or [()]))
        if list(columns) != self.statistics:
            raise ValueError(f"a shard has {list(columns)}, not {self.statistics}")
        rows = np.concatenate(
            [column.reshape(len(weights), -1) for column in columns.values()], axis=1
        )
        self.stream.add(rows.astype(np.float64), weights)

    def rows(self) -> dict[str, list[Cell]]:
        """The columns of a table with one row for every statistic and place."""
        if self.stream is None:
            return {}
        places: Sequence[tuple[int, int] | tuple[None, None]] = self.places or [(None, None)]
        keys = [(name, *place) for name in self.statistics for place in places]
        columns: dict[str, list[Cell]] = {
            "table": [self.name] * len(keys),
            "statistic": [statistic for statistic, _, _ in keys],
            "site": [site for _, site, _ in keys],
            "head": [head for _, _, head in keys],
        }
        return columns | {name: column.tolist() for name, column in self.stream.summary().items()}
