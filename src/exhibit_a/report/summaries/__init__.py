"""The title and the rows that the command line prints for each kind of result.

``summary_rows(result)`` finds the function registered for the result's class, or for the nearest
class it extends. To summarise a new kind of result, register one function with
``@summary_rows.register``; results without one get the numbers of their largest tensors
(``any_rows.py``).
"""

from exhibit_a.report.summaries import attribution as attribution
from exhibit_a.report.summaries import comparison as comparison
from exhibit_a.report.summaries import context as context
from exhibit_a.report.summaries import explanation as explanation
from exhibit_a.report.summaries import heads as heads
from exhibit_a.report.summaries import identifiability as identifiability
from exhibit_a.report.summaries import mixing as mixing
from exhibit_a.report.summaries import trials as trials
from exhibit_a.report.summaries import triggers as triggers
from exhibit_a.report.summaries.dispatch import Summary as Summary
from exhibit_a.report.summaries.dispatch import summary_rows as summary_rows
