"""What every result promises, whatever method it came from."""

import exhibit_a
from exhibit_a.results.result import Result


def test_every_result_of_the_package_can_be_drawn():
    for name in exhibit_a.__all__:
        getattr(exhibit_a, name)
    own = [kind for kind in Result.kinds.values() if kind.__module__.startswith("exhibit_a.")]
    assert own
    assert not [kind.__name__ for kind in own if kind.plot is Result.plot]
