"""Running a model: a pass remembered, a pass changed, and the number that is asked of it."""

from exhibit_a.trace import edits as edits
