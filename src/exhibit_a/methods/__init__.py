"""One question per file; each answers it with a function from a trace or a subject to a result."""
