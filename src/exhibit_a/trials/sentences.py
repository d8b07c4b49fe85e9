"""Puts margins into words that a person who must decide can read.

A margin is a number of log-odds. Where the answer has a probability it is reported as one; where
the answer is a number, the margin is that number.
"""

import math

from exhibit_a.methods.attribution.reliance import Reliance

LOG_ODDS = "log odds of "  # how the name of a target with a probability begins
SEVERAL = " tokens)"  # and how that of a whole answer ends
CANCELS = "what some heads add, others take"
SMALLEST = 1e-4  # probability that is written out
TWICE = 2.0  # a factor from which it is reported as one; smaller ones in percent
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def probability_text(value: float) -> str:
    """A probability with the digits that count, without its nought.

    >>> probability_text(0.954), probability_text(0.9996), probability_text(0.0312)
    ('.95', '.9996', '.031')
    >>> probability_text(1e-9), probability_text(1 - 1e-9)
    ('less than .0001', 'more than .9999')
    """
    rest = min(value, 1 - value)
    if rest < SMALLEST:
        return "less than .0001" if value < 0.5 else "more than .9999"
    digits = max(2, 1 - math.floor(math.log10(rest)) - (value > 0.5))
    return f"{value:.{digits}f}".removeprefix("0")


def small_text(value: float) -> str:
    """A very small number, or a very large one, as people write it.

    >>> small_text(2.8e-6), small_text(3.5e-12), small_text(0.0)
    ('2.8 × 10⁻⁶', '3.5 × 10⁻¹²', '0')
    """
    if value == 0:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(RAISED)}"


def percent_text(share: float) -> str:
    """A part with its sign; what rounds to nothing has none.

    >>> percent_text(0.179), percent_text(-0.0004)
    ('+18%', '0%')
    """
    return "0%" if round(share, 2) == 0 else f"{share:+.0%}"


def format_margin(reliance: Reliance, margin: float) -> str:
    """A margin as a probability, or as the number it is.

    >>> result = xa.reliance(trace)
    >>> format_margin(result, 0.0), format_margin(result, 2.0)
    ('.50', '.88')
    """
    if not has_probability(reliance):
        return f"{margin:.3g}"
    value = 1 / (1 + math.exp(-max(min(margin, 700.0), -700.0)))
    if reliance.target.endswith(SEVERAL) and value < SMALLEST:
        return small_text(value)  # a long answer is unlikely, however good it is
    return probability_text(value)


def has_probability(reliance: Reliance) -> bool:
    """Whether the answer has a probability, and is not a number of its own."""
    return reliance.target.startswith(LOG_ODDS)


def answer_name(reliance: Reliance) -> str:
    """The answer that is explained, by its name alone.

    >>> answer_name(xa.reliance(trace))
    'positive'
    """
    if not has_probability(reliance):
        return "the number"
    return reliance.target.removeprefix(LOG_ODDS).rpartition(" at position ")[0] or (
        reliance.target.removeprefix(LOG_ODDS)
    )


def short_answer_name(reliance: Reliance) -> str:
    """The answer where it was named before: a whole sentence is not written twice.

    >>> short_answer_name(xa.reliance(trace))
    'positive'
    """
    return "it" if reliance.target.endswith(SEVERAL) else answer_name(reliance)


def odds_text(change: float) -> str:
    """What a change of log-odds does to the odds.

    >>> odds_text(-4.5), odds_text(0.05), odds_text(-0.001)
    ('its odds 90 times smaller', 'its odds 5% larger', '')
    >>> odds_text(-18.0)
    'its odds 6.6 × 10⁷ times smaller'
    """
    way, factor = ("smaller" if change < 0 else "larger"), math.exp(min(abs(change), 700.0))
    if factor >= TWICE:
        times = f"{factor:.3g}" if factor < 100 else small_text(factor)
        return f"its odds {times} times {way}"
    part = round(abs(math.expm1(change)), 2)
    return f"its odds {part:.0%} {way}" if part else ""


def describe_change(reliance: Reliance, margin: float) -> str:
    """What the answer becomes, from what it is to another margin.

    Beside probabilities near 1 stand the odds: they still move where those hardly do.
    """
    before, after = format_margin(reliance, reliance.margin), format_margin(reliance, margin)
    odds = ""
    if has_probability(reliance) and (before == after or min(reliance.margin, margin) > 0):
        odds = odds_text(margin - reliance.margin)
    what = "its probability" if has_probability(reliance) else "it"
    in_odds = f" ({odds})" if odds else ""
    if before == after:
        return f"{what} would stay at {before}{in_odds}"
    verb = "fall" if margin < reliance.margin else "rise"
    return f"{what} would {verb} from {before} to {after}{in_odds}"


def cancels(reliance: Reliance, line: float) -> bool:
    """Whether heads add a part of the margin, and all heads together add less than that part."""
    added = sum(float(site.clamp_min(0).sum()) for site in reliance.heads)
    return abs(reliance.whole) < line * reliance.size <= added
