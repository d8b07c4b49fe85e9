"""Which panels does a page show for this result?"""

from functools import singledispatch

from exhibit_a.report.any_result import any_panels
from exhibit_a.report.header import Panels
from exhibit_a.report.pack import Blocks
from exhibit_a.results.result import Result


@singledispatch
def panels_of(result: Result, blocks: Blocks) -> Panels:
    """The panels of a result; their numbers are added to ``blocks``."""
    return any_panels(result, blocks)
