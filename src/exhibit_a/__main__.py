"""``python -m exhibit_a`` is the command ``exhibit-a``."""

from exhibit_a.commands.start import main

main()
