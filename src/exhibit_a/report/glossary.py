"""One sentence for each word and number of the page, the terminal and the docs.

The page shows it where a word or number is pointed at; ``docs/glossary.md`` is written from it.
"""

WORDS: dict[str, str] = {
    "advice": "One sentence for the person who must decide what to show.",
    "answer": "What the model says: a class, a token, several tokens, or a number.",
    "answer loses": (
        "What the answer loses, as a probability, when the first words of the heat map are "
        "hidden; mean over the cuts."
    ),
    "attention map": (
        "For one head, a table of weights: one row for each word that looks (*query*), one "
        "column for each word that is looked at (*key*)."
    ),
    "attribution": (
        "How much of the answer is owed to something: to an edge, a word, a head. Always "
        "against a baseline."
    ),
    "baseline": "What “without it” means: no attention, levelled attention, a hidden word.",
    "check": (
        "A number that says how far to trust the others: parity, gap, tolerance, standard error. "
        "The terminal lists them last."
    ),
    "coherence": (
        "How far the rows of a head speak for the same side: 1 means all of them, 0 as many "
        "against as for."
    ),
    "completeness gap": (
        "The difference between the sum of all attributions and the change they should add up to."
    ),
    "contested": "The answer rests on it, but other weights would have given the same output.",
    "difference": "The number of the second less the number of the first.",
    "edge": "One entry of an attention map: this query to this key, in this head.",
    "effective attention": "The part of an attention map that can reach the output of its head.",
    "evidence": "The answer rests on where the heads look, and on no other weights or words.",
    "head": (
        "One of the parallel attention maps of a layer. Written “layer 3, head 9”; both are "
        "counted from 0."
    ),
    "heat map": "A score for each word, shown as shades of the text.",
    "identifiable": "No other valid map would have given the same output.",
    "layer": (
        "One step of the model. In a model with two stacks: “encoder layer 3”, “decoder layer 3”."
    ),
    "levelled attention": (
        "A head that keeps what it gives to its sinks, and spreads the rest of each row evenly "
        "over the words it may see: a head that does not choose."
    ),
    "margin": (
        "How far the answer is ahead of all others together: its log-odds, 0 where it is as "
        "likely as not."
    ),
    "misleading": (
        "The answer rests on it, but the weights lie on other words than those that count."
    ),
    "no effect": "The answer does not depend on where it looks.",
    "null space": "The directions in which a row can change without changing the head's output.",
    "p": (
        "The chance that random words or rows would have done as well; small means that it is"
        " no luck."
    ),
    "parity": "How far our run of the model is from its own. Zero for nearly every model.",
    "pass": "One run of the model over one text. The unit in which costs are counted.",
    "points": "A head points when its weights lie on the words its contribution comes from.",
    "probability": (
        "How sure the model is of this answer, between 0 and 1, over all answers it could give."
    ),
    "reliance": (
        "How much of the margin is lost with levelled attention instead of the heads’ own."
    ),
    "result": (
        "What every method returns: numbers, the words they belong to, where they come from, "
        "and checks."
    ),
    "row": "The weights of one query over all keys.",
    "share": (
        "What a head's attention adds to the margin, compared with levelled attention; in parts of "
        "the margin as it is or with levelled attention, whichever is larger."
    ),
    "shared": "A head whose work others do when it is levelled.",
    "sink": "A token that collects weight without contributing, often the first one.",
    "site": (
        "In Python, the number of an attention layer, counted through the whole model: "
        "`site=3`. People read “layer 3”."
    ),
    "special token": "A token that the tokenizer added, such as `[CLS]`.",
    "stack": (
        "The layers that read one text. A translator has two: the encoder reads the source, the "
        "decoder its own words; its “cross” layers look from the second to the first."
    ),
    "steering": (
        "What a head adds to the margin by moving where other heads look: its share when other "
        "maps follow, less its share when they are frozen."
    ),
    "target": "The one number of the answer that is explained, such as the probability of a class.",
    "token": "A piece of text as the model reads it. Words are made of one or more tokens.",
    "trace": "One run of the model, remembered.",
    "trial": "All questions about one text, and a verdict for each head.",
    "true label": (
        "The label that was given with the text, by a person or a data set; the model did not"
        " see it."
    ),
    "undetermined": "Not known: a check failed, or a map alone cannot tell.",
    "uniform attention": (
        "The weight of a row is the same on all words it may see: a head without a choice."
    ),
    "verdict": "One of five words: evidence, contested, misleading, no effect, undetermined.",
    "word": "A word of the text as it was written; its numbers are those of its tokens together.",
}

CHECKS: dict[str, str] = {  # that a trial carries
    "seed": "The number that random draws start from: the same seed gives the same numbers.",
    "reliance, by": (
        "How the shares of heads were found: along a path from levelled attention, or by taking "
        "heads in turn."
    ),
    "reliance, gap as a share of the whole": (
        "How far the shares of all heads miss what they should add up to, as a part of it."
    ),
    "reliance, points": (
        "Steps between levelled attention and the model’s own at which the answer was computed."
    ),
    "margin with all rows permuted": (
        "The margin of the answer when the weights of each row are permuted among the words it "
        "sees, on average."
    ),
    "its standard error": "How far that average may be off by chance.",
    "loss by random sets of as many heads": (
        "What the answer loses without as many heads drawn at random: what the carrying heads"
        " must beat."
    ),
    "standard error of that loss": "How far that loss may be off by chance.",
    "largest change of a head's output, effective": (
        "The largest change of any head’s output when effective attention stands in for raw: "
        "rounding only."
    ),
    "rows with other valid attention": (
        "Rows for which other valid weights with the same output were found."
    ),
    "rows searched for the farthest": "Rows for which the most distant of these was looked for.",
    "largest change of a head's output, alternatives": (
        "The largest change of any head’s output with other weights in place: rounding only."
    ),
    "change of the answer with all alternatives in place": (
        "How far the answer moves with all these weights in place at once."
    ),
    "rounding of the answer": "How far the answer moves by rounding alone.",
    "attribution, largest gap": "The largest completeness gap of any layer.",
    "attribution, largest gap as a share of the change": (
        "The same as a part of what it should add up to."
    ),
    "attribution, most points": "The most steps that the attribution of a layer took.",
    "mixing, probes": "Random directions per token with which mixing was estimated.",
    "mixing, largest standard error": (
        "How far an estimated share of mixing may be off by chance, at most."
    ),
}


def plain_sentences() -> dict[str, str]:
    """Every entry without marks of formatting, as the page shows it."""
    return {
        term: sentence.replace("*", "").replace("`", "")
        for term, sentence in (WORDS | CHECKS).items()
    }
