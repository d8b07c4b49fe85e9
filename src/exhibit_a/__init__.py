"""Exhibit A: is an attention map evidence of what the model did?

>>> import exhibit_a as xa
>>> subject = xa.load("sentiment")
>>> trace = xa.capture(subject, "a gripping , beautifully shot film")

The public names stand in ``__init__.pyi``, once; each is imported when it is first used, and so is
what looks them up: the command line answers at once, and to Ctrl-C from the start.
"""


def __getattr__(name: str) -> object:
    return _public(name)


def __dir__() -> list[str]:
    _public("__all__")
    return __dir__()  # lazy_loader's now


def _public(name: str) -> object:
    """The public name, when the first one is requested; lazy_loader takes over from here."""
    from importlib.metadata import version

    import lazy_loader

    find, listed, names = lazy_loader.attach_stub(__name__, __file__)
    plain = {"__all__": names, "__version__": version("exhibit-a")}
    globals().update(plain, _public=find, __getattr__=find, __dir__=listed)
    return plain[name] if name in plain else find(name)
