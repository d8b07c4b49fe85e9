"""What do the reference models say about attention? The numbers of docs/models.md.

    python studies/reference.py bleu           --data DATA --work FOLDER
    python studies/reference.py alignments     --data DATA [--count 20]
    python studies/reference.py identifiable   --data DATA --work FOLDER
    python studies/reference.py jain-wallace   --data DATA --work FOLDER [--count 100]
    python studies/reference.py poster         --data DATA --work FOLDER
    python studies/reference.py complexity

``bleu``          three translators (`translation.py` trains them in FOLDER): BLEU with beams, by
                  length of the source, cost of the training, and paired bootstrap
``alignments``    attention, effective attention, self-attribution and reliance of both embedded
                  translators against gold links, beside a diagonal; domains differ: parliament and
                  brochures
``identifiable``  SST-2 from nothing: heads side by side or added, seven widths of keys, 3 seeds
``jain-wallace``  a BiLSTM with one attention row beside `sentiment`: Kendall τ with gradients and
                  leave-one-out, permutations, the exact adversary
``poster``        a small Transformer with softmax and with 1.5-entmax, and what shuffled, random
                  and adversarial keys do to each; on SST-2, as the poster's IMDB is not at hand
``complexity``    where the work of one layer goes as texts become longer

Each appends lines to docs/data/reference-PART.jsonl and leaves out what is there already, so that
it can be stopped and started again. ``docs/making/models.py`` makes the page.
"""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from entmax import entmax15
from make_models import sentiment_examples
from scipy.stats import kendalltau
from study import DOCS, Row, parse, read_sst, resumed, rows, spent
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from translation import RECIPES, TEST, files, translated

import exhibit_a as xa
from exhibit_a.errors import require_choice
from exhibit_a.extras import extra
from exhibit_a.models import RecurrentClassifier, TransformerConfig
from exhibit_a.models.base import through
from exhibit_a.models.classifier import Reading, TextClassifier, of_stack
from exhibit_a.models.sublayers import MultiHeadAttention, attended
from exhibit_a.models.transformer import EncoderLayer, TransformerStack
from exhibit_a.training.data import read_pairs
from exhibit_a.training.train import RECORD, accuracy, train
from exhibit_a.training.translating import bleu as bleu_of

BUCKETS = (0, 8, 12, 16, 24, 1000)  # words of the source
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
SEEDS = (0, 1, 2)
RESAMPLES = 1000  # of the sentences, for the difference of two translators
LONGEST = 40  # words of a pair whose alignment is looked at
SIGNIFICANT = 0.05
TOKENS = (16, 64, 128, 256, 512, 1024)
Work = Iterator[tuple[str, Callable[[], Row]]]


def main() -> None:
    options = parse(__doc__, part=PARTS, data=Path, work=Path, count=int, out=DOCS)
    file = options.out / f"reference-{options.part}.jsonl"
    resumed(file, [({"key": key}, work) for key, work in PARTS[options.part](options)])


def finished(file: Path) -> dict[str, Row]:
    """The lines of a file by their keys."""
    return {row["key"]: row for row in rows(file)}


def trained_on_sst(config: Any, options: Namespace, name: str, **settings: Any) -> xa.Subject:
    """A classifier of film reviews from nothing, from an earlier run if there was one."""
    folder: Path = options.work / name
    if not folder.is_dir():
        learn, aside = sentiment_examples(options.data)
        train(config, learn, dev=aside, out=folder, max_length=64, epochs=5, **settings)
    return xa.load(folder)


def dev_set(options: Namespace) -> list[xa.Example]:
    return read_sst(options.data / "SST-2/dev.tsv")


def right(subject: xa.Subject, dev: list[xa.Example]) -> float:
    return accuracy(subject.model, subject.tokenizer, dev)


# a. BLEU


def bleu(options: Namespace) -> Work:
    known = finished(options.out / "reference-bleu.jsonl")
    there = [name for name in RECIPES if name in known or (options.work / name).is_dir()]
    for name in there:
        yield name, lambda name=name: one_translator(options, name)
    for first, second in pairwise(there):
        yield f"{first} and {second}", lambda pair=(first, second): bootstrapped(options, *pair)


def one_translator(options: Namespace, name: str) -> Row:
    """Translations of the test set, BLEU in all and by length, and what the training cost."""
    folder = options.work / name
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    written, score = translated(model, tokenizer, options.data / "multi30k", TEST)
    pairs = read_pairs(files(options.data / "multi30k", TEST))
    buckets = []
    for low, high in pairwise(BUCKETS):
        places = [n for n, (text, _) in enumerate(pairs) if low < len(text.split()) <= high]
        part = bleu_of([written[n] for n in places], [pairs[n][1] for n in places])
        buckets.append({"from": low + 1, "to": high, "count": len(places), "bleu": part})
    record = json.loads((folder / RECORD).read_text())
    return {
        "bleu": score,
        "buckets": buckets,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "processor_hours": record["processor_hours"],
        "epochs": record["epochs"],
        "translations": written,
    }


def bootstrapped(options: Namespace, first: str, second: str) -> Row:
    """Is the difference of two translators chance? Paired bootstrap over sentences."""
    lines = finished(options.out / "reference-bleu.jsonl")
    references = [target for _, target in read_pairs(files(options.data / "multi30k", TEST))]
    systems = [(name, lines[name]["translations"]) for name in (first, second)]
    metrics = {"BLEU": extra("sacrebleu.metrics").BLEU()}
    paired = extra("sacrebleu.significance").PairedTest
    _, scores = paired(systems, metrics, [references], test_type="bs", n_samples=1000)()
    drawn = torch.randint(
        len(references), (RESAMPLES, len(references)), generator=torch.Generator().manual_seed(0)
    )  # the same sentences for both
    again = [resampled(written, references, drawn) for _, written in systems]
    ahead = torch.tensor(again, dtype=torch.float64).diff(dim=0).neg()
    return {
        "scores": [result.score for result in scores["BLEU"]],
        "intervals": [result.ci for result in scores["BLEU"]],
        "p_value": scores["BLEU"][1].p_value,
        "difference": {"interval": ahead.quantile(torch.tensor([0.025, 0.975]).double()).tolist()},
    }


def resampled(written: list[str], references: list[str], drawn: Tensor) -> list[float]:
    """BLEU of each draw of sentences; it is made of counts that add up over them, so a sentence is
    read once."""
    metric = extra("sacrebleu.metrics").BLEU()
    counts = []
    for text, gold in zip(written, references, strict=True):
        found = metric.corpus_score([text], [[gold]])
        counts.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
    totals = torch.tensor(counts)[drawn].sum(1).tolist()
    return [metric.compute_bleu(row[:4], row[4:8], *row[8:]).score for row in totals]


# b. alignments: which source word does a translator look at for each target word, and is it the
# right one? Gold links are pairs of words (German, English), sure or possible. A map gives each
# German word the English word with the highest score; the alignment error rate is (Och and Ney,
# 2003)
#
#     AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),      S ⊆ P the sure and the possible links.
#
# Maps are over pieces of words: a word's columns are added up, its rows averaged. A decoder's row i
# is the one from which piece i is predicted.

Links = set[tuple[int, int]]  # German word, English word


@dataclass(frozen=True)
class Gold:
    """A pair of sentences, in words, and how they are linked."""

    german: str
    english: str
    sure: Links
    possible: Links

    @property
    def lengths(self) -> tuple[int, int]:
        return len(self.german.split()), len(self.english.split())


def read_gold(path: Path) -> list[Gold]:
    """The pairs of a file: German, English, and links such as ``0-0 3?1``."""
    pairs = []
    for line in path.read_text("utf-8").splitlines()[1:]:
        german, english, linked = line.split("\t")
        sure, fuzzy = (
            {tuple(map(int, link.split(mark))) for link in linked.split() if mark in link}
            for mark in "-?"
        )
        pairs.append(Gold(german, english, sure, sure | fuzzy))
    return pairs


def alignments(options: Namespace) -> Work:
    for name, embedded in (("transformer", "translation"), ("additive", "translation-additive")):
        subject = xa.load(embedded)
        for file in sorted((options.data / "align-de-en").glob("*.tsv")):
            short = [gold for gold in read_gold(file) if max(gold.lengths) <= LONGEST and gold.sure]
            for number, gold in enumerate(short[: options.count]):
                yield (
                    f"{name} {file.stem} {number}",
                    lambda subject=subject, gold=gold: aligned(subject, gold),
                )


def aligned(subject: Any, gold: Gold) -> Row:
    """The four counts of every map, by cross site, and of the diagonal."""
    trace = xa.capture(subject, gold.english, target_text=gold.german)
    sites = [number for number, site in enumerate(trace.sites) if site.kind == "cross"]
    words = words_of(subject.tokenizer, gold.german), words_of(subject.tokenizer, gold.english)
    target = xa.choose_target(trace, "answer")
    maps = {
        "attention": trace.attention,
        "effective": xa.effective_attention(trace).effective,
        "self-attribution": xa.self_attribution(trace, target=target).scores,
        "reliance": xa.reliance(trace, target=target).edges,
    }
    counts = {
        name: [counted(linked(over_words(found[site].mean(0), *words)), gold) for site in sites]
        for name, found in maps.items()
    }
    return {"counts": counts, "diagonal": counted(diagonal(*gold.lengths), gold)}


def words_of(tokenizer: Any, text: str) -> list[int]:
    """For every token of a text the number of its word between blanks; −1 for special tokens."""
    starts = [0] + [place + 1 for place, letter in enumerate(text) if letter == " "]
    encoded = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    numbers = []
    for (low, high), special in zip(
        encoded["offset_mapping"], encoded["special_tokens_mask"], strict=True
    ):
        middle = max(low, high - 1)  # a piece may begin with the blank before its word
        numbers.append(-1 if special else sum(start <= middle for start in starts) - 1)
    return numbers


def over_words(scores: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Scores of (target piece, source piece) as scores of (target word, source word)."""
    row, column = (
        torch.nn.functional.one_hot(torch.tensor(each) + 1)[:, 1:].to(scores.dtype)
        for each in (rows, columns)
    )
    return (row / row.sum(0).clamp_min(1)).T @ scores @ column


def linked(table: Tensor) -> Links:
    """For every target word its best source word."""
    return {(target, int(source)) for target, source in enumerate(table.argmax(-1))}


def diagonal(targets: int, sources: int) -> Links:
    """What somebody would say who knows the lengths alone."""
    step = (sources - 1) / max(1, targets - 1)
    return {(target, round(target * step)) for target in range(targets)}


def counted(found: Links, gold: Gold) -> dict[str, int]:
    """The four numbers of which error rates are made; they can be added up over pairs."""
    right = {"sure": len(found & gold.sure), "possible": len(found & gold.possible)}
    return right | {"found": len(found), "gold": len(gold.sure)}


# c. identifiable encoders


def identifiable(options: Namespace) -> Work:
    for heads in ("con", "add"):
        for width in WIDTHS:
            for seed in SEEDS:
                yield (
                    f"{heads} {width} {seed}",
                    lambda at=(heads, width, seed): encoder(options, *at),
                )


def encoder(options: Namespace, heads: str, width: int, seed: int) -> Row:
    """Accuracy, ranks beside what the equations promise, unique rows, and the verdict."""
    config = xa.models.IdentifiableConfig(vocab_size=8000, heads=heads, d_key=width)
    name, dev = f"identifiable-{heads}-{width}-{seed}", dev_set(options)
    seconds, subject = spent(lambda: trained_on_sst(config, options, name, seed=seed))
    ranks, unique = [], []
    for example in dev[:100]:
        trace = xa.capture(subject, example.text, keep=("attention", "values", "keys", "hidden"))
        site, count = xa.attention_identifiability(trace), len(trace.tokens)
        ranks.append(count - int(site.same_output[0].max()) == min(count, config.d_value))
        unique.append(site.unique(0).tolist())
    return {
        "heads": heads,
        "d_key": width,
        "seed": seed,
        "accuracy": right(subject, dev),
        "examples": len(dev),
        "ranks_as_predicted": mean(ranks),
        "unique": torch.tensor(unique).mean(0).tolist(),
        "verdicts": [xa.trial(subject, example.text).word for example in dev[:3]],
        "seconds": seconds,
    }


# d. Jain & Wallace compare attention with other scores by Kendall's τ over the words. Their
# gradient scores are |Σ gradient × embedding| of the probability, with the attention row held as it
# is: the gradient goes through the annotations only.


def jain_wallace(options: Namespace) -> Work:
    recurrent = trained_on_sst(xa.models.RecurrentConfig(vocab_size=12000), options, "recurrent")
    dev = dev_set(options)
    for name, subject in {"recurrent": recurrent, "sentiment": xa.load("sentiment")}.items():
        whole = lambda subject=subject: {"accuracy": right(subject, dev), "examples": len(dev)}  # noqa: E731
        yield f"{name} accuracy", whole
        for number, example in enumerate(dev[: options.count]):
            yield (
                f"{name} {number}",
                lambda subject=subject, text=example.text: one_sentence(subject, text),
            )


def one_sentence(subject: Any, text: str) -> Row:
    """Attention beside gradients and leave-one-out; shuffled rows; the farthest allowed row.

    Of a Transformer, attention is the last layer's row that the answer is read from, averaged over
    heads, and the adversary changes every map at once.
    """
    trace = xa.capture(subject, text)
    recurrent = isinstance(subject.model, RecurrentClassifier)
    names = ["occlusion"] if recurrent else ["raw", "gradient_input", "occlusion"]
    found = xa.companions(trace, methods=names, erase="delete")
    scores = {name: result.scores.double().abs() for name, result in found.items()}
    if recurrent:
        scores["raw"] = trace.attention[0][0, 0].double()
        scores["gradient_input"] = gradient_scores(subject.model, trace.inputs["input_ids"])
    inner = ~trace.special
    if inner.sum() < 3:
        return {"words": int(inner.sum())}
    scores = {name: part[inner] for name, part in scores.items()}
    adversary = xa.adversarial_attention(trace, epsilon=0.01)
    return {
        "words": int(inner.sum()),
        "gradient": agreement(scores["raw"], scores["gradient_input"]),
        "leave_one_out": agreement(scores["raw"], scores["occlusion"]),
        "permuted": float(xa.permutation_test(subject, [text]).change[-1].median()),
        "largest": float(scores["raw"].max()),
        "farthest": float(adversary.divergence[-1]),
        "exact": bool(adversary.exact[-1]),
    }


def gradient_scores(model: RecurrentClassifier, ids: Tensor) -> Tensor:
    """|Σ gradient × embedding| for every token of one text; nothing flows through the row."""
    with torch.no_grad():
        row = model(ids, output_attentions=True).cross_attentions[0][0, 0, 0]
    words = model.embedding(ids).detach().requires_grad_()
    states = words
    for layer in model.reading:
        states = layer(states)
    chance = model.classifier(row @ states[0]).softmax(-1)[-1]
    (gradient,) = torch.autograd.grad(chance, words)
    return (gradient * words).sum(-1).abs()[0].detach()


def agreement(first: Tensor, second: Tensor) -> tuple[float, bool]:
    """Kendall's τ of two rows of scores, and whether it is significant."""
    found = kendalltau(first.numpy(), second.numpy())
    return float(found.statistic), bool(found.pvalue < SIGNIFICANT)


# e. the poster, "Is Attention Explanation in Transformers?" (Drozdyuk, Vafaie, Ogbuagu,
# Hajianpour): a small encoder whose attention is softmax or 1.5-entmax; 4 layers of width 128, 8
# heads, d_ff 512, sinusoidal positions, states summed over the tokens, one map to the labels.
# 1.5-entmax (Peters et al., 2019) gives weights that can be exactly zero:
#
#     p = [z/2 − τ]₊²,  with the τ that makes them add up to one


class PosterConfig(TransformerConfig):
    """Sizes of a `PosterClassifier`; the defaults are the poster's."""

    model_type = "study-poster"
    normaliser: str = "softmax"  # or "entmax"
    vocab_size: int = 20000
    d_model: int = 128
    encoder_layers: int = 4
    d_ff: int = 512
    is_encoder_decoder: bool = False

    def check_sizes(self) -> None:
        super().check_sizes()
        require_choice("normaliser", self.normaliser, ("softmax", "entmax"))


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **kwargs: Any,  # noqa: ARG001 - what other attention functions want
) -> tuple[Tensor, Tensor]:
    """softmax or 1.5-entmax of Q Kᵀ / √d_k, times V."""
    scores = query @ key.mT * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = entmax15(scores) if module.config.normaliser == "entmax" else scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class PosterAttention(MultiHeadAttention):
    """Multi-head attention with the normaliser of the configuration."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        query = self._heads(self.query(hidden_states))
        key, value = self._heads(self.key(hidden_states)), self._heads(self.value(hidden_states))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attend(
            self, query, key, value, attention_mask, scaling=self.d_head**-0.5, **kwargs
        )
        return self.output(context.flatten(-2)), weights


class PosterLayer(EncoderLayer):
    def __init__(self, config: PosterConfig, index: int) -> None:
        super().__init__(config, index)
        self.attention = PosterAttention(config, index)


class PosterClassifier(TextClassifier, TransformerStack):
    """A classifier of texts: states are summed over the tokens that are not padding."""

    config_class = PosterConfig
    config: PosterConfig
    layer, depth = PosterLayer, "encoder_layers"
    _supports_sdpa = False  # it knows no entmax

    def __init__(self, config: PosterConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels or 0)
        self.finish()

    def read(self, input_ids: Tensor, attention_mask: Tensor | None) -> Reading:
        states = self._embedded(input_ids, self.embedding)
        mask = create_bidirectional_mask(self.config, states, attention_mask)
        history, maps = through(self.layers, states, mask)
        real = 1 if attention_mask is None else attention_mask.unsqueeze(-1)
        return of_stack((history[-1] * real).sum(1), history, maps)


AutoConfig.register(PosterConfig.model_type, PosterConfig, exist_ok=True)
AutoModelForSequenceClassification.register(PosterConfig, PosterClassifier, exist_ok=True)


def poster(options: Namespace) -> Work:
    dev = dev_set(options)[: options.count]
    for name in ("softmax", "entmax"):
        config = PosterConfig(normaliser=name, vocab_size=12000)
        subject = trained_on_sst(config, options, f"poster-{name}")
        yield name, lambda subject=subject: perturbed(options, subject, dev)
        yield f"{name}: losses", lambda subject=subject: losses(subject, dev)


def losses(subject: xa.Subject, dev: list[xa.Example]) -> Row:
    """Accuracy lost where the weights of each row are shuffled, with 95 % intervals, by layer."""
    shuffled = xa.permutation_test(subject, dev, repeats=10)
    lost = torch.cat([shuffled.drop[:, None], shuffled.drop_interval], 1).tolist()
    return {"losses": dict(zip(shuffled.conditions, lost, strict=True)), "examples": len(dev)}


def perturbed(options: Namespace, subject: xa.Subject, dev: list[xa.Example]) -> Row:
    """Accuracy as it is, with the other normaliser, with shuffled rows, and with other keys."""
    row: Row = {"original": right(subject, dev), "examples": len(dev)}
    own = subject.model.config.normaliser
    subject.model.config.normaliser = {"softmax": "entmax", "entmax": "softmax"}[own]
    row["other activation"] = right(subject, dev)
    subject.model.config.normaliser = own
    shuffled = xa.permutation_test(subject, dev, repeats=3)
    row["shuffled"] = dict(zip(shuffled.conditions, shuffled.accuracy.tolist(), strict=True))
    keys = xa.adversarial_keys(subject, sentiment_examples(options.data)[1], held_out=dev)
    row["keys"] = dict(zip(keys.conditions, keys.accuracy.tolist(), strict=True))
    return row


# f. complexity


def complexity(_: Namespace) -> Work:
    for count in TOKENS:
        yield str(count), lambda count=count: work_of_one_layer(count, 128, 4)


@torch.no_grad()
def work_of_one_layer(count: int, width: int, heads: int) -> Row:
    """Operations and processor time of attention itself (n²d) and of the four projections (nd²)."""
    states = torch.randn(1, count, width)
    split = states.view(1, count, heads, -1).transpose(1, 2)
    maps = [torch.randn(width, width) for _ in range(4)]
    works = {
        "looking": lambda: attended(split @ split.mT, None, split),
        "projecting": lambda: [states @ matrix for matrix in maps],
    }
    row: Row = {"tokens": count, "width": width, "heads": heads}
    times = max(1, 2**18 // count**2)
    for name, work in works.items():
        with FlopCounterMode(display=False) as counter:
            work()
        seconds, _ = spent(lambda work=work: [work() for _ in range(times)])
        row[name] = {"operations": counter.get_total_flops(), "seconds": seconds / times}
    return row


PARTS: dict[str, Callable[[Namespace], Work]] = {
    "bleu": bleu,
    "alignments": alignments,
    "identifiable": identifiable,
    "jain-wallace": jain_wallace,
    "poster": poster,
    "complexity": complexity,
}

if __name__ == "__main__":
    main()
