"""``python -m exhibit_a`` is the command ``exhibit-a``."""

from exhibit_a.cli import main

main()
