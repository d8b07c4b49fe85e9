"""One draw decides which examples are put aside, whoever asks."""

import pytest

from exhibit_a.examples import Example
from exhibit_a.examples.labels import put_aside, split_off
from exhibit_a.training.data import split

EXAMPLES = [Example(str(number), f"text {number}", None, str(number % 2)) for number in range(40)]


@pytest.mark.parametrize("share", [0.001, 0.1, 1 / 3, 0.9])
def test_every_place_is_kept_or_put_aside(share):
    kept, aside = split_off(40, share, seed=3)
    assert sorted(kept + aside) == list(range(40))
    assert len(aside) == max(1, round(40 * share))


def test_methods_and_training_put_the_same_examples_aside():
    learn, judge = put_aside(EXAMPLES, 0.2, seed=5)
    kept, aside = split(EXAMPLES, 0.2, seed=5)
    assert [int(example.id) for example in judge] == split_off(40, 0.2, seed=5)[1]
    assert sorted(judge, key=EXAMPLES.index) == aside  # training keeps the order of the data
    assert sorted(learn, key=EXAMPLES.index) == kept
