"""What every result promises, whatever method it came from."""

import inspect

import pytest

import exhibit_a
from exhibit_a.report.figures import draw
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import provenance

PUBLIC = [getattr(exhibit_a, name) for name in sorted(exhibit_a.__all__)]
RESULTS = [kind for kind in PUBLIC if inspect.isclass(kind) and issubclass(kind, Result)]
KINDS = [kind for kind in RESULTS if kind is not Result]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_public_result_can_be_read_and_drawn(kind):
    assert Result.kinds[kind.__name__] is kind
    assert draw.dispatch(kind) is not draw.dispatch(object)


def test_a_summary_names_the_method_the_tokens_and_the_checks():
    made = provenance("tiny", "nothing", seed=3)
    result = Result(tokens=("a", "film"), provenance=made, checks={"parity": 1 / 3})
    assert result.summary() == repr(result)
    assert result.summary() == (
        "Result: nothing on tiny, 2 tokens (a film). Tensors: none. Checks: parity 0.3333."
    )


def test_long_texts_are_cut_in_summaries():
    made = provenance("tiny", "nothing")
    words = tuple(f"w{number}" for number in range(1000))
    assert len(Result(tokens=words, provenance=made).summary()) < 600
