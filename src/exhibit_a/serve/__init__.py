"""The local server: the page with a box to type into."""
