"""Which families are supported, and how exactly are they followed?

Prints the table of docs/families.md: every family of the contract, built small with random weights,
observed, and compared with its own eager pass.
"""

import sys
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.zoo import CONTRACT, HYBRID, REFUSED

from exhibit_a.errors import ExhibitError
from exhibit_a.subject.subject import Subject, load


def main() -> None:
    transformers.logging.set_verbosity_error()
    print(__doc__.splitlines()[0].join(["# ", "\n"]))
    print(
        "A family is supported when it passes `tests/subject/test_family_contract.py`; the parity "
        "below is the largest\ndifference between the pass we watch, with every probability "
        "handed back by us, and the model's own eager\npass. Made by `make families` with "
        f"transformers {transformers.__version__}.\n"
    )
    print("| family | tap | parity | attention | output projection |")
    print("|---|---|---|---|---|")
    for name, family in CONTRACT.items():
        print(row(name, load(family.build())))
    print("\n## Refused, or supported in part\n")
    for name, family in (HYBRID | REFUSED).items():
        print(f"* **{name}**: {verdict(family.build())}")


def row(name: str, subject: Subject) -> str:
    anatomy = subject.anatomy
    seen = [variant for site in anatomy.sites for variant in site.variants]
    seen += ["causal" for site in anatomy.sites if site.causal]
    seen += ["cross-attention" for site in anatomy.sites if site.kind == "cross"]
    seen += [f"window of {site.window}" for site in anatomy.sites if site.window]
    kinds = {type(subject.model.get_submodule(s.projection)).__name__ for s in anatomy.sites}
    about = ", ".join(dict.fromkeys(seen)) or "plain"
    return f"| {name} | {anatomy.tap} | {anatomy.parity:.1e} | {about} | {', '.join(kinds)} |"


def verdict(model: transformers.PreTrainedModel) -> str:
    try:
        sites = load(model).anatomy.sites
    except ExhibitError as refused:
        return f"{type(refused).__name__}: {refused}"
    problem = next(site.projection_problem for site in sites if site.projection is None)
    return f"can be read and edited; methods that need the output projection cannot run: {problem}."


if __name__ == "__main__":
    main()
