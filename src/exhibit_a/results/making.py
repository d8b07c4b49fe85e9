"""The one way to make a result: what every result says of its origin is written down here.

A method gives its own numbers and checks. Added are where they come from, how exactly the pass
follows the model, what to beware of with the model on these tokens, the image that was looked at,
and, where only some rows of attention were kept, which.
"""

import dataclasses
from typing import Any, TypeVar

from exhibit_a.results.result import Result
from exhibit_a.shapes import Options
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace

Made = TypeVar("Made", bound=Result)


def build_result(
    kind: type[Made],
    source: Trace | Subject,
    method: str,
    /,
    *,
    seed: int | None = None,
    settings: Options | None = None,
    checks: Options | None = None,
    **fields: Any,
) -> Made:
    """A result about a pass, or about a model and data of its own.

    ``settings`` are the parameters that the method was given. ``fields`` are those of the result;
    what a pass says of its tokens need not be given.
    """
    subject = source if isinstance(source, Subject) else source.subject
    facts: Options = {"provenance": subject.provenance(method, seed, **(settings or {}))}
    all_checks: Options = {"parity": subject.anatomy.parity} | (checks or {})
    if isinstance(source, Subject):
        all_checks |= source.warnings(fields.get("tokens") or ())
    else:
        facts |= {"tokens": source.tokens, "layouts": source.layouts, "scene": source.scene}
        known: Options = {"sites": source.sites, "sequences": source.token_names}
        if (partial := source.partial) is not None:
            tokens = source.token_names[partial.stack]
            all_checks["rows"] = f"{len(partial.rows)} of {len(tokens)}"
            all_checks["requested rows compared with the kernel"] = partial.parity
            known["rows"] = partial.rows
            known["row_tokens"] = tuple(tokens[row] for row in partial.rows)
        all_checks |= source.warnings
        names = {field.name for field in dataclasses.fields(kind)}
        facts |= {name: value for name, value in known.items() if name in names}
    return kind(**facts | {"checks": all_checks} | fields)
