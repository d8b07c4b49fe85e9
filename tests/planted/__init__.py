"""Models whose truth about attention is known, because their weights were set by hand."""
