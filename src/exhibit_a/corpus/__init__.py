"""Many inputs: a method over a whole data set, on one machine or many; a killed run can resume.

>>> texts = ["a gripping film", "dull and far too long"]
>>> xa.corpus.run(subject, texts, "effective_attention", tmp_path / "out").counts["examples"]
2
>>> xa.corpus.open(tmp_path / "out").to_pandas()["answer"].tolist()
['positive', 'negative']
"""

from exhibit_a.extras import BROUGHT_BY, missing

try:
    from exhibit_a.corpus.read import Run, Summary, diff, open
    from exhibit_a.corpus.running import resume, run
except ModuleNotFoundError as problem:
    library = (problem.name or "").partition(".")[0]
    if library in BROUGHT_BY:
        raise missing(library) from None
    raise

__all__ = ["Run", "Summary", "diff", "open", "resume", "run"]
