"""Showing results: page, terminal, notebook, figures."""
