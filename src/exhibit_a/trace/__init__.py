"""Running a model: a pass remembered, a pass changed, and the number that is explained."""

from exhibit_a.trace import edits as edits
