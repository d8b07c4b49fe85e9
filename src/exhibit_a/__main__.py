"""``python -m exhibit_a`` is the command ``exhibit-a``."""

from exhibit_a.commands.main import main

main()
