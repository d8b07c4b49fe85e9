"""Exhibit A: attention, on the stand.

>>> import exhibit_a as xa
>>> subject = xa.load("sentiment")
>>> trace = xa.capture(subject, "a gripping , beautifully shot film")

The public names stand in ``__init__.pyi``, once; each is imported when it is first used, so that
the command line answers at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
