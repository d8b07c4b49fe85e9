"""Many inputs: the same methods over a data set, on one machine or many, nothing lost.

>>> xa.corpus.run("sentiment", "reviews.tsv", "effective_attention", "out", workers=2)
>>> xa.corpus.open("out").to_pandas("heads")
"""

from exhibit_a.extras import extra

try:
    from exhibit_a.corpus.read import Run, Summary, diff, open
    from exhibit_a.corpus.running import resume, run
except ModuleNotFoundError as missing:
    extra(missing.name or "pyarrow", "corpus")
    raise

__all__ = ["Run", "Summary", "diff", "open", "resume", "run"]
