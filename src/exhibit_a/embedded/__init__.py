"""The models inside the package, with their weights."""
