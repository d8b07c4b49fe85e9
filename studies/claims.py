"""What do the founding documents claim, and when would a measurement bear it out?

Each claim has its document, its wording and number (as the document gives it; a number that could
not be verified is not repeated), and the tests that decide its word. A test names a measurement of
the ledger and the range that the claim allows: *yes* where the whole 95 % interval lies in it,
*no* where the whole interval lies outside, *open* where it has a foot on both sides. The word then
follows, nobody types it:

holds                every test says yes
holds in part        some do
does not hold here   none does, and at least one says no
undecided here       every test is open: the sample is too small
not measured yet     a measurement is missing
cannot be asked here what it takes is not to be had: the claim says why
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from measurements import Measurement

HOLDS, IN_PART, NOT_HERE = "holds", "holds in part", "does not hold here"
UNDECIDED = "undecided here"
UNMEASURED, CANNOT = "not measured yet", "cannot be asked here"
WORDS = (HOLDS, IN_PART, NOT_HERE, UNDECIDED, UNMEASURED, CANNOT)
YES, NO, OPEN = "yes", "no", "open"


@dataclass(frozen=True)
class Test:
    """The range in which a measurement bears a claim out."""

    id: str
    low: float = -math.inf
    high: float = math.inf

    def outcome(self, found: Measurement) -> str:
        """Whether the interval lies inside, outside, or has a foot on both sides."""
        low, high = found.interval
        if self.low <= low and high <= self.high:
            return YES
        return NO if high < self.low or low > self.high else OPEN

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"at most {self.high:g}"
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class Claim:
    """A sentence of a document, and what would bear it out here."""

    title: str
    document: str
    says: str
    number: str  # the document's; empty where it gives none
    command: str  # that measures it
    tests: tuple[Test, ...] = ()
    cannot: str = ""  # why it cannot be asked here
    note: str = ""  # what the tests leave out

    def word(self, known: Mapping[str, Measurement]) -> str:
        """The word that the measurements give it."""
        if self.cannot:
            return CANNOT
        if any(test.id not in known for test in self.tests):
            return UNMEASURED
        said = [test.outcome(known[test.id]) for test in self.tests]
        if all(one == YES for one in said):
            return HOLDS
        if YES in said:
            return IN_PART
        return NOT_HERE if NO in said else UNDECIDED


def above(name: str, line: float = 0.0) -> Test:
    return Test(name, low=line)


def below(name: str, line: float) -> Test:
    return Test(name, high=line)


def between(name: str, low: float, high: float) -> Test:
    return Test(name, low, high)


DOCUMENTS = {
    "brunner": "On Identifiability in Transformers (Brunner et al., ICLR 2020), with Telling "
    "BERT's Full Story (Pascual et al., EACL 2021)",
    "bhardwaj": "More Identifiable yet Equally Performant Transformers (Bhardwaj et al., ACL 2021)",
    "hao": "Self-Attention Attribution (Hao et al., AAAI 2021)",
    "poster": "Is Attention Explanation in Transformers? (poster), with Attention is not "
    "Explanation (Jain & Wallace, NAACL 2019)",
    "seminar": "The attention seminar (Bahdanau et al., 2015; Vaswani et al., 2017)",
    "open": "Questions that the documents end with",
}

LENGTH = "python studies/identifiability.py --base sentiment --data DATA --texts 20"
MIXING = "python studies/mixing.py --base sentiment --data DATA/SST-2 --sentences 200"
EXPLANATION = "python studies/explanation.py --data DATA/SST-2 --out OUT"
REFERENCE = "python studies/reference.py"
COLLAPSE = "python studies/collapse.py --data DATA"
GOLD = "python studies/gold.py --data DATA"
TASKS = "python studies/tasks.py"
CURVES = TASKS + " curves --data DATA --work WORK"
FOUR = ("SST-2", "MNLI", "RTE", "MRPC")
LARGER = "`all-mpnet-base-v2`"  # as large as BERT-base: 12 layers, 12 heads of width 64
CAUSAL = "`SmolLM2-135M-Instruct`"  # 30 layers, 9 heads of width 64, keys shared by three
CAUSALLY = "python studies/causal.py --base MODELS/SmolLM2-135M-Instruct --data DATA --texts 8"
PICTURES = "python studies/pictures.py --data DATA/SST-2 --out docs/data"
SENTENCES = "python studies/verdict.py sentences --data DATA"
NAMED = "answer lost without the words that are named first"
EDGES = "python studies/edges.py --data DATA --sentences 200"

CLAIMS = (
    Claim(
        "Short texts",
        "brunner",
        "A text with no more tokens than a head is wide has one attention only: raw and effective "
        "attention are the same.",
        "Pearson 1 up to 64 tokens, heads of width 64",
        LENGTH,
        (
            above("Pearson of raw and effective attention at 24 tokens, heads of width 32", 0.999),
            above(
                f"Pearson of raw and effective attention at 64 tokens, heads of width 64, {LARGER}",
                0.99,
            ),
        ),
    ),
    Claim(
        "Long texts",
        "brunner",
        "Beyond that the two part, the more the longer the text.",
        "Pearson falls beyond 64 tokens",
        LENGTH,
        (
            below("Pearson of raw and effective attention at 64 tokens, heads of width 32", 0.95),
            above("Pearson lost between 64 and 256 tokens"),
            below(
                "Pearson of raw and effective attention at 128 tokens, heads of width 64, "
                f"{LARGER}",
                0.95,
            ),
            above(f"Pearson lost between 64 and 512 tokens, {LARGER}"),
        ),
    ),
    Claim(
        "Separators",
        "brunner",
        "The high weight on special tokens is for the most part not effective: it falls to the "
        "level of other tokens.",
        "",
        LENGTH,
        (
            above("weight that special tokens lose at 256 tokens"),
            below("effective weight of a special token at 256 tokens, over its even share", 2.0),
            above(f"weight that special tokens lose at 512 tokens, {LARGER}"),
            below(
                f"effective weight of a special token at 512 tokens, over its even share, {LARGER}",
                2.0,
            ),
        ),
    ),
    Claim(
        "Sinks of a causal model",
        "brunner",
        "The same of a causal model, asked of the token that it looks at most, the first: most of "
        "that weight is not effective.",
        "",
        CAUSALLY,
        (
            above(
                "weight that the first token loses in effective attention, late rows, layers after "
                f"the first, {CAUSAL}"
            ),
            below(
                "effective weight of late rows on the first token, over its even share, layers "
                f"after the first, {CAUSAL}",
                2.0,
            ),
        ),
        note="The document has no causal model. Late rows see more tokens than a head is wide; in "
        "the others raw and effective attention are the same.",
    ),
    Claim(
        "Early rows of a causal model",
        "brunner",
        "A row that sees no more tokens than a head is wide is determined by its output; in a "
        "causal model these are the early rows of any text.",
        "",
        CAUSALLY,
        (
            above(
                "rows that see at most 64 tokens and are determined by their output, layers after "
                f"the first, {CAUSAL}",
                0.99,
            ),
            above(
                "rows that see at most 64 tokens and are determined by their output, first layer, "
                f"{CAUSAL}",
                0.99,
            ),
            above(
                f"dimensions that the output of row 128 cannot show, heads 64 wide, {CAUSAL}", 32
            ),
        ),
        note="Rotary positions are not in the values: in the first layer a word that comes twice "
        "has the same value twice, and no output tells them apart.",
    ),
    Claim(
        "Same output, other weights",
        "brunner",
        "In a long text infinitely many weights give the same output, so weights alone prove "
        "nothing.",
        "",
        LENGTH,
        (
            above("distance of the farthest valid row with the same output, at 64 tokens", 0.01),
            below("change of the answer with that row in place", 1e-3),
        ),
        note="The row must not be negative and must sum to one, which the document does not ask; "
        "0.01 of total variation is a weight that a reader could see.",
    ),
    Claim(
        "Tokens can be told",
        "brunner",
        "A token can be found again from its hidden vector in every layer, by a learnt map.",
        "high in all layers",
        MIXING + " --parts tokens",
        (
            above("tokens found again in the last layer, linear map, cosine", 0.8),
            above(f"tokens found again in the last layer, linear map, cosine, {LARGER}", 0.8),
        ),
    ),
    Claim(
        "Direction over length",
        "brunner",
        "They are found better by cosine than by distance: identity lies in the angle.",
        "",
        MIXING + " --parts tokens",
        (
            above("tokens found by cosine and not by distance, last layer, linear map"),
            above(f"tokens found by cosine and not by distance, last layer, linear map, {LARGER}"),
        ),
    ),
    Claim(
        "Found less with depth",
        "brunner",
        "The rate falls with depth.",
        "",
        MIXING + " --parts tokens",
        (
            above("tokens found again in layer 1 and not in the last, linear map, cosine"),
            above(
                f"tokens found again in layer 1 and not in the last, linear map, cosine, {LARGER}"
            ),
        ),
    ),
    Claim(
        "Less than half after one layer",
        "brunner",
        "After the first layer less than half of a hidden vector is owed to its own token.",
        "< 50 %",
        MIXING + " --parts mixing",
        (
            below("own share after layer 1, median token", 0.5),
            below(f"own share after layer 1, median token, {LARGER}", 0.5),
        ),
    ),
    Claim(
        "A few per cent in the end",
        "brunner",
        "The share goes on falling, to a few per cent in the last layer.",
        "7.5 % (first version of the paper)",
        MIXING + " --parts mixing",
        (
            above("own share lost from layer 1 to the last, median token"),
            above(f"own share lost from layer 1 to the last, median token, {LARGER}"),
            below("own share after the last layer, median token", 0.1),
            below(f"own share after the last layer, median token, {LARGER}", 0.1),
        ),
        note="`sentiment` has 6 layers; `all-mpnet-base-v2` has 12, like the paper's model.",
    ),
    Claim(
        "Not its own first contributor",
        "brunner",
        "About a third of the tokens are not the first contributor to their own vector in the last "
        "layers.",
        "about 30 %",
        MIXING + " --parts mixing",
        (
            between("tokens that are not their own first contributor, last layer", 0.2, 0.4),
            between(
                f"tokens that are not their own first contributor, last layer, {LARGER}", 0.2, 0.4
            ),
            between("tokens that are not their own first contributor, layer before it", 0.2, 0.4),
            between(
                f"tokens that are not their own first contributor, layer before it, {LARGER}",
                0.2,
                0.4,
            ),
        ),
    ),
    Claim(
        "Mixing is local",
        "brunner",
        "Near neighbours contribute more than far ones.",
        "",
        MIXING + " --parts mixing",
        (
            above("contribution of a direct neighbour less that of one five away"),
            above(f"contribution of a direct neighbour less that of one five away, {LARGER}"),
            above(f"contribution of a direct neighbour less that of one five away, {CAUSAL}"),
        ),
    ),
    Claim(
        "Farther with depth",
        "brunner",
        "Far tokens gain in deeper layers.",
        "",
        MIXING + " --parts mixing",
        (
            above("contribution of a token five away, last layer less first"),
            above(f"contribution of a token five away, last layer less first, {LARGER}"),
            above(f"contribution of a token five away, last layer less first, {CAUSAL}"),
        ),
    ),
    Claim(
        "Attention is local, contribution is not",
        "brunner",
        "Where a head looks in a layer is not where its output comes from: beyond the first layer "
        "the two distributions differ.",
        "",
        MIXING + " --parts heads",
        (
            above("weight that lies elsewhere than the contribution, layers after the first", 0.2),
            above("weight that lies elsewhere, layers after the first less the first"),
        ),
    ),
    Claim(
        "Effective attention reads better",
        "brunner",
        "Effective attention is nearer to what people mark than raw attention (Sun & Marasović, "
        "2021, asked it of linguistic features).",
        "",
        GOLD,
        (
            above("agreement with people, effective less raw attention (AUPRC)"),
            above(f"{NAMED}, effective less raw attention"),
            above("agreement with movie rationales, effective less raw attention (AUPRC)"),
            above(
                "answer lost without the first fifth of the words, movie rationales, effective "
                "less raw attention"
            ),
        ),
        note="Most sentences of SST are shorter than a head is wide; there the two are the same. "
        "Reviews are cut to 512 tokens.",
    ),
    Claim(
        "Keys make rows unique",
        "bhardwaj",
        "Weights that the model's own keys could have produced are far more often the only ones "
        "than the null space suggests.",
        "",
        LENGTH,
        (
            below("rows that the output alone determines, at 64 tokens", 0.01),
            above("rows that output and keys determine, at 64 tokens", 0.95),
        ),
    ),
    Claim(
        "Heads added or side by side",
        "bhardwaj",
        "Heads that are added classify as well as heads side by side.",
        "",
        REFERENCE + " identifiable --data DATA --work WORK",
        (between("accuracy of added less concatenated heads", -0.02, 0.02),),
    ),
    Claim(
        "Small keys",
        "bhardwaj",
        "Much smaller keys, which make attention identifiable, cost no accuracy.",
        "",
        REFERENCE + " identifiable --data DATA --work WORK",
        (between("accuracy of keys of width 4 less width 64", -0.02, 0.02),),
    ),
    Claim(
        "Raw attention is not enough",
        "hao",
        "A large weight need not contribute to the answer.",
        "",
        EDGES,
        (below("rank correlation of weights and contributions, all edges", 0.5),),
    ),
    Claim(
        "Twenty steps",
        "hao",
        "Twenty steps of the sum are enough for the integral.",
        "m = 20",
        EDGES,
        (
            below("gap of 20 steps, as a share of what the layer changes", 0.05),
            above("rank correlation of 20 steps with the closed integral", 0.99),
        ),
    ),
    Claim(
        "Attribution ranks edges",
        "hao",
        "Edges of high attribution are the ones that the answer needs, more than those of high "
        "weight.",
        "",
        EDGES,
        (
            above(
                "answer lost without the first tenth of the edges, by attribution less by weight"
            ),
            above("answer lost without the first tenth of the edges, by weight less at random"),
        ),
    ),
    Claim(
        "Attribution names the words",
        "hao",
        "What attribution points at, the answer needs; more than what raw attention points at.",
        "",
        PICTURES,
        (
            above(f"{NAMED}, self-attribution less raw attention"),
            above(f"{NAMED}, reliance less raw attention"),
        ),
        note="The second test is of this package's own measure.",
    ),
    Claim(
        "A head or two",
        "hao",
        "Without the two heads of each layer that attribution names for an example, accuracy "
        "collapses; with the heads that attention names it does not.",
        "",
        TASKS + " effectiveness --data DATA --work WORK",
        tuple(
            test
            for task in FOUR
            for test in (
                above(
                    "accuracy lost without the two first heads of each layer, by attribution "
                    f"({task})",
                    0.3,
                ),
                above(
                    f"accuracy lost without these heads, by attribution less by attention ({task})"
                ),
            )
        ),
    ),
    Claim(
        "Two heads are enough",
        "hao",
        "With only the two heads of each layer that attribution names, most of the accuracy stays.",
        "",
        TASKS + " effectiveness --data DATA --work WORK",
        tuple(
            below(
                "accuracy lost with only the two first heads of each layer, by attribution "
                f"({task})",
                0.1,
            )
            for task in FOUR
        ),
        note="The ranking looks at the right answer, so accuracy may even rise.",
    ),
    Claim(
        "Pruning by attribution",
        "hao",
        "Most heads can go, the least important first, at little cost.",
        "",
        CURVES,
        tuple(
            below(f"accuracy lost with half of the heads gone, by attribution ({task})", 0.03)
            for task in FOUR
        ),
    ),
    Claim(
        "Against Taylor and accuracy",
        "hao",
        "Attribution prunes better than the Taylor measure, and as well as measuring each head.",
        "",
        CURVES,
        tuple(
            test
            for task in FOUR
            for test in (
                above(f"mean accuracy along the curve, attribution less taylor ({task})"),
                above(f"mean accuracy along the curve, attribution less ablation ({task})", -0.01),
            )
        ),
    ),
    Claim(
        "Like tasks, like heads",
        "hao",
        "Important heads correlate between like tasks (MNLI and RTE), less between unlike ones "
        "(MNLI and SST-2).",
        "",
        TASKS + " pairs --data DATA --work WORK",
        (
            above(
                "correlation of head importance, MNLI and RTE less MNLI and SST-2, by attribution"
            ),
            above(
                "correlation of head importance, MNLI and RTE alone less MNLI and SST-2, by "
                "attribution"
            ),
        ),
        note="The best classifier of RTE was trained by way of MNLI and may have inherited its "
        "heads; RTE alone was not.",
    ),
    Claim(
        "Trees show what matters",
        "hao",
        "The words of an attribution tree are the ones that the answer needs.",
        "",
        EDGES,
        (above("answer lost without the words of the tree, less as many random words"),),
        note="The document shows trees and lets the reader judge; deleting words is our test.",
    ),
    Claim(
        "Triggers, pairs of texts",
        "hao",
        "Words of the strongest edges, put into other texts, turn the answer (MNLI, RTE, MRPC).",
        "",
        TASKS + " triggers --data DATA --work WORK",
        tuple(
            test
            for model in ("nli", "RTE", "MRPC")
            for test in (
                above(f"accuracy lost to patterns of attribution less random words ({model})"),
                above(
                    f"accuracy lost to patterns of attribution less patterns of attention ({model})"
                ),
            )
        ),
    ),
    Claim(
        "Triggers, single texts",
        "hao",
        "The same for single sentences (SST-2).",
        "",
        TASKS + " triggers --data DATA --work WORK",
        (
            above("accuracy lost to patterns of attribution less random words (sentiment)"),
            above(
                "accuracy lost to patterns of attribution less patterns of attention (sentiment)"
            ),
        ),
    ),
    Claim(
        "A second on a V100",
        "hao",
        "Attribution of 128 tokens takes about a second.",
        "1 s, V100",
        "python benchmarks/attribution.py",
        cannot="There is no such graphics card here. Passes and processor time: docs/speed.md.",
    ),
    Claim(
        "Shuffled keys cost six points",
        "poster",
        "Shuffling the keys among positions costs a little accuracy, not most of it.",
        "6 points",
        EXPLANATION + " --parts permutation report",
        (
            above("accuracy lost, keys shuffled in all layers"),
            between("accuracy lost, keys shuffled in all layers", 0.03, 0.09),
        ),
    ),
    Claim(
        "Shuffled weights cost ten points",
        "poster",
        "Shuffling the weights in all layers costs some accuracy, and most answers stay.",
        "83.9 → 74.1 % (its notebook)",
        SENTENCES,
        (
            below("answers that turn when every row of every head is shuffled", 0.5),
            below("answers that turn when every row of every head is shuffled", 0.15),
        ),
    ),
    Claim(
        "Attention is not explanation",
        "poster",
        "The map that people show, the last layer's, is for most texts no better an explanation "
        "than chance.",
        "",
        PICTURES,
        (below("texts on which the picture of last-layer attention clearly beats chance", 0.5),),
        note="Words are deleted in the order of the picture, against random orders of the same "
        "text; a picture clearly beats chance where its adjusted p-value says so.",
    ),
    Claim(
        "Attention is not not explanation",
        "poster",
        "On the whole attention is better than chance (the answer to Jain & Wallace by Wiegreffe & "
        "Pinter, 2019), and the answer rests on it.",
        "",
        PICTURES,
        (
            above(f"{NAMED}, raw attention less random orders"),
            above("part of the margin that is lost when every head looks evenly", 0.25),
        ),
    ),
    Claim(
        "Only the first layer",
        "poster",
        "Only the first layer's attention matters; shuffling any other alone changes nothing.",
        "no change",
        EXPLANATION + " --parts permutation report",
        (
            above("accuracy lost, keys shuffled in the first layer"),
            below("largest loss of accuracy, keys shuffled in one later layer", 0.01),
        ),
        note="The largest of five losses is a little above the true one by chance; its interval is "
        "that of the layer which lost most.",
    ),
    Claim(
        "Only the first layer, in the poster's model",
        "poster",
        "The same in a model of the poster's sizes, trained from nothing.",
        "no change",
        REFERENCE + " poster --data DATA --work WORK",
        (
            above("accuracy lost, weights shuffled in the first layer, the poster's model"),
            below("largest loss of accuracy, one later layer shuffled, the poster's model", 0.01),
        ),
        note="On SST-2, as the poster's IMDB is not at hand; the largest of three losses.",
    ),
    Claim(
        "Adversarial keys",
        "poster",
        "Other keys, far from the model's own, give nearly the same answers.",
        "86.5 → 83.5 % (its report)",
        EXPLANATION + " --parts keys report",
        (
            below("accuracy lost with adversarial keys", 0.05),
            above("divergence of the maps under adversarial keys", 0.1),
        ),
    ),
    Claim(
        "Keys lose noise",
        "poster",
        "Keys trained to be far away may even classify better: they lose noise.",
        "82.7 → 83.6 % (its notebook)",
        EXPLANATION + " --parts keys report",
        (below("accuracy lost with adversarial keys", 0.0),),
    ),
    Claim(
        "Attention that says something else",
        "poster",
        "For a given answer there is attention almost without overlap with the model's own (Jain & "
        "Wallace asked it of one row).",
        "Jensen–Shannon divergence near its maximum, 0.69",
        EXPLANATION + " --parts adversary report",
        (above("divergence of the farthest maps with the same answer, all layers", 0.6),),
    ),
    Claim(
        "Attention and leaving words out",
        "poster",
        "Attention agrees weakly with what leaving each word out does (Jain & Wallace).",
        "Kendall's τ 0.29 on SST, one recurrent layer",
        EXPLANATION + " --parts faithfulness report",
        (
            below("Kendall's tau of raw attention with leaving words out", 0.5),
            between("Kendall's tau of raw attention with leaving words out", 0.19, 0.39),
        ),
    ),
    Claim(
        "The Transformer translates better",
        "seminar",
        "A Transformer translates better than a recurrent translator with attention.",
        "BLEU 28.4 on WMT 2014 English–German",
        REFERENCE + " bleu --data DATA --work WORK",
        (above("BLEU of the Transformer less that of the recurrent translator, Multi30k"),),
    ),
    Claim(
        "WMT 2014",
        "seminar",
        "The base model reaches the BLEU of its table on WMT 2014.",
        "28.4 and 41.8",
        "python studies/translation.py --data DATA/multi30k --work WORK transformer",
        cannot="4.5 and 36 million pairs, and days on graphics cards; Multi30k stands in.",
    ),
    Claim(
        "Quadratic in length, quadratic in width",
        "seminar",
        "Self-attention takes n²·d operations and the projections n·d²: looking is the cheaper "
        "part while texts are shorter than the model is wide.",
        "n²·d against n·d²",
        REFERENCE + " complexity",
        (
            between("growth of looking when the text doubles, operations", 4, 4),
            between("growth of projecting when the text doubles, operations", 2, 2),
            below("looking over projecting, processor time, text half as long as the width", 1.0),
            above("looking over projecting, processor time, text eight times the width", 1.0),
        ),
    ),
    Claim(
        "Two products instead of four: exact?",
        "open",
        "Can W_Q·W_Kᵀ and W_V·W_O be multiplied once, so that a head is two products?",
        "",
        COLLAPSE,
        (
            below("largest change of a logit with collapsed heads, float64", 1e-9),
            below("largest change of a logit with collapsed heads, float32", 1e-3),
        ),
    ),
    Claim(
        "Two products instead of four: cheaper?",
        "open",
        "Does it save operations?",
        "",
        COLLAPSE,
        (
            below(
                "operations of collapsed heads over the usual ones, 32 tokens, as wide as here", 1
            ),
            below(
                "operations of collapsed heads over the usual ones, one head as wide as the model",
                1,
            ),
        ),
    ),
    Claim(
        "Two products instead of four: shared keys?",
        "open",
        "Does it save where heads share keys and values?",
        "",
        COLLAPSE,
        (below("operations of collapsed heads over the usual ones, keys shared by three", 1),),
    ),
    Claim(
        "Two products instead of four: rotary positions?",
        "open",
        "Can keys and queries be collapsed where positions turn them?",
        "",
        COLLAPSE,
        (below("matrices that replace one head's W_Q·W_Kᵀ under rotary positions, 64 tokens", 1),),
        note="W_Q·R(j − i)·W_Kᵀ is another matrix for every distance; values and output "
        "collapse as before.",
    ),
    Claim(
        "Do adversarial keys lower the loss?",
        "open",
        "Does training the keys lower the model's own loss on texts it has not seen?",
        "",
        EXPLANATION + " --parts keys report",
        (above("accuracy gained with keys trained to stay near the model's own"),),
        note="Accuracy stands for the loss. Only the keys change, to stay near and answer rightly.",
    ),
)
