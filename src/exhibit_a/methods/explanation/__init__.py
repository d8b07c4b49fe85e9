"""Is attention an explanation? What changes when it is replaced, and what other methods say."""
