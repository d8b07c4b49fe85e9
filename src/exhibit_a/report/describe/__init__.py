"""What every kind of result is made of, stated once for page, terminal, notebook, LaTeX, plots.

``describe(result)`` finds the function registered for the result's class, or for the nearest class
it extends. To show a new kind of result, register one function with ``@describe.register``: it
takes the result and gives its blocks (``report/blocks.py``). A kind without one is shown by the
tables and maps that its fields make.
"""

from exhibit_a.report.describe import attribution as attribution
from exhibit_a.report.describe import explanation as explanation
from exhibit_a.report.describe import heads as heads
from exhibit_a.report.describe import identifiability as identifiability
from exhibit_a.report.describe import mixing as mixing
from exhibit_a.report.describe import trials as trials
from exhibit_a.report.describe.registry import describe as describe
from exhibit_a.report.describe.registry import summary_table as summary_table
