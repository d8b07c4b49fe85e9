"""What has been measured? The lines that ``ledger.py`` wrote, read back without the package."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs/data/claims.jsonl"


@dataclass(frozen=True)
class Measurement:
    """One number and all that is needed to doubt it."""

    id: str
    value: float
    interval: tuple[float, float]  # 95 %; both ends are the value where nothing was sampled
    count: int
    of: str  # what was counted: sentences, heads, ...
    model: str
    data: str
    command: str
    versions: dict[str, str]

    @property
    def exact(self) -> bool:
        """Whether it was counted or calculated, so that another sample would say the same."""
        return self.interval == (self.value, self.value)

    def overlaps(self, other: "Measurement") -> bool:
        """Whether two measurements of the same thing agree within their intervals."""
        return self.interval[0] <= other.interval[1] and other.interval[0] <= self.interval[1]


def kept(path: Path = FILE) -> dict[str, Measurement]:
    """The last measurement of each id; none where there is no file yet."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["id"]: Measurement(**row | {"interval": tuple(row["interval"])}) for row in rows}
