"""How is a translator made from nothing? From pairs of sentences, a configuration and a seed.

1. Read the pairs; without a development set, put a part of them aside.
2. Learn one vocabulary for both languages (``vocabulary``), and draw the first weights.
3. Run the loop (``fit_translator``). What it needs to go on after a kill is kept in the folder
   ``OUT.checkpoints``; the same call goes on from there. The folder goes when the model is saved.
4. Write the model with the best averaged weights, its tokenizer and the record of its training.
"""

import shutil
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from transformers import (
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.errors import BadRequestError
from exhibit_a.examples.labels import split_off
from exhibit_a.extras import extra
from exhibit_a.progress import progress_bar
from exhibit_a.results.files import free_folder
from exhibit_a.results.plain import JSON
from exhibit_a.shapes import Options
from exhibit_a.subject.sources import moved
from exhibit_a.training.checkpoints import Checkpoints
from exhibit_a.training.fit_translator import TranslatorSchedule, fit_translator
from exhibit_a.training.options import Request
from exhibit_a.training.parallel_text import Pairs, read_pairs
from exhibit_a.training.saving import Trained, require_room, saved_when_trained
from exhibit_a.training.vocabulary import learnt_vocabulary

CHECKPOINTS = ".checkpoints"  # behind the name of the folder that the model goes to


def train_translator(
    config: PretrainedConfig, schedule: TranslatorSchedule, request: Request
) -> Path:
    """Train a new translator and save it; a call that was killed goes on when it is made again."""
    extra("sacrebleu")  # missing after the first epoch would be late
    target = free_folder(request.out)
    pairs = _with_some_aside(request)
    place = target.with_name(target.name + CHECKPOINTS)
    kept = Checkpoints(place, _settings(config, schedule, pairs))
    kept.require_free()

    def make(folder: Path) -> Trained:
        model, tokenizer = _new(config, pairs[0], kept, schedule.batch_tokens)
        require_room(folder, model)
        moved(model, request.device)
        with progress_bar("training", visible=request.progress) as bar:
            history = fit_translator(model, tokenizer, pairs, schedule, kept, bar)
        tokenizer("")  # a fast tokenizer remembers that it padded, and would save it
        record: dict[str, JSON] = {
            "base": type(config).__name__,
            "train_pairs": len(pairs[0]),
            "dev_pairs": len(pairs[1]),
            "dev_bleu": max(entry["bleu"] for entry in history if entry["bleu"] is not None),
            "processor_hours": sum(entry["processor_seconds"] for entry in history) / 3600,
            "epochs": history,
        }
        return Trained(model, tokenizer, record | {"schedule": asdict(schedule)})

    saved_when_trained(target, schedule.seed, make)
    shutil.rmtree(kept.folder, ignore_errors=True)
    return target


def _with_some_aside(request: Request) -> tuple[Pairs, Pairs]:
    """The pairs to learn from, and those to choose by."""
    pairs = read_pairs(request.train)
    if request.dev is not None:
        return pairs, read_pairs(request.dev)
    learn, aside = split_off(len(pairs), request.holdout, request.seed)
    return [pairs[place] for place in sorted(learn)], [pairs[place] for place in sorted(aside)]


def _settings(
    config: PretrainedConfig, schedule: TranslatorSchedule, pairs: tuple[Pairs, Pairs]
) -> dict[str, JSON]:
    """What must stay the same when a training goes on; it may become longer."""
    text = "\n".join(line for part in pairs for pair in part for line in pair)
    data = f"{len(pairs[0])} + {len(pairs[1])} pairs, {sha256(text.encode()).hexdigest()[:12]}"
    lasting = {"epochs", "patience"}
    sizes = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"}
    return {"model": sizes, "data": data} | {
        k: v for k, v in asdict(schedule).items() if k not in lasting
    }


def _new(
    config: PretrainedConfig, pairs: Pairs, kept: Checkpoints, longest: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with its first weights, and the vocabulary: learnt, or that of the checkpoints."""
    if kept.history():
        tokenizer = kept.vocabulary()
    else:
        tokenizer = learnt_vocabulary((text for pair in pairs for text in pair), config.vocab_size)
        _require_short(tokenizer, pairs, longest)
        kept.begin(tokenizer)
    words: Options = {"vocab_size": len(tokenizer)}
    sized = type(config).from_dict({**config.to_dict(), **words})
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_config(sized)
    return model, tokenizer


def _require_short(tokenizer: PreTrainedTokenizerBase, pairs: Pairs, longest: int) -> None:
    """Refuse a sentence that fills more than a batch: attention over it may fit no memory."""
    for number, pair in enumerate(pairs, 1):
        count = max(map(len, tokenizer(list(pair))["input_ids"]))
        if count > longest:
            raise BadRequestError(
                f"Pair {number} to learn from has {count} tokens, and a batch takes {longest}; "
                "shorten it, or give more batch_tokens."
            )
