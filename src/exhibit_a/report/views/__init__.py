"""The panels that a page shows for each kind of result.

``panels_of(result, blocks)`` finds the function registered for the result's class, or for the
nearest class it extends. To show a new kind of result, register one function with
``@panels_of.register``; a kind without one gets its largest maps, and tables of the rest.
"""

from exhibit_a.report.views import attribution as attribution
from exhibit_a.report.views import comparison as comparison
from exhibit_a.report.views import context as context
from exhibit_a.report.views import heads as heads
from exhibit_a.report.views import identifiability as identifiability
from exhibit_a.report.views import mixing as mixing
from exhibit_a.report.views import pictures as pictures
from exhibit_a.report.views import reliance as reliance
from exhibit_a.report.views import trials as trials
from exhibit_a.report.views.dispatch import panels_of as panels_of
