"""How is a translator made from nothing? From pairs of sentences, a configuration and a seed.

1. Read the pairs; without a development set, put a part of them aside.
2. Learn one vocabulary for both languages (``vocabulary``), and draw the first weights.
3. Run the loop (``fit_translator``). What it needs to go on after a kill is kept in the folder
   ``OUT.checkpoints``; the same call goes on from there. The folder goes when the model is saved.
4. Write the model with the best averaged weights, its tokenizer and the record of its training.
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, ExhibitError
from exhibit_a.examples.labels import split_off
from exhibit_a.extras import extra
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.progress import progress_bar
from exhibit_a.results.files import folder_beside, free_folder
from exhibit_a.results.plain import JSON
from exhibit_a.shapes import Options
from exhibit_a.training.checkpoints import Checkpoints
from exhibit_a.training.fit_translator import TranslatorSchedule, fit_translator
from exhibit_a.training.parallel_text import Pairs, read_pairs
from exhibit_a.training.saving import Trained, UnsavedModelError
from exhibit_a.training.vocabulary import learnt_vocabulary

CHECKPOINTS = ".checkpoints"  # behind the name of the folder that the model goes to


def train_translator(
    config: PretrainedConfig,
    train: object,
    *,
    dev: object = None,
    out: str | Path,
    holdout: float = 0.05,
    schedule: TranslatorSchedule | None = None,
    progress: bool = True,
) -> Path:
    """Train a new translator and save it in the folder ``out``.

    ``train`` and ``dev`` are pairs of files or lists of pairs (`read_pairs`). A call that was
    killed goes on where it was when it is made again. The same seed gives the same weights.
    """
    schedule = schedule or TranslatorSchedule()
    require_seed(schedule.seed)
    extra("sacrebleu")  # missing after the first epoch would be late
    target = free_folder(Path(out))
    pairs = _with_some_aside(read_pairs(train), dev, holdout, schedule.seed)
    kept = Checkpoints(target.with_name(target.name + CHECKPOINTS), _settings(config, schedule))
    trained = None
    try:
        with folder_beside(target) as folder, torch.random.fork_rng():
            torch.manual_seed(schedule.seed)
            model, tokenizer = _new(config, pairs[0], kept)
            with progress_bar("training", visible=progress) as bar:
                history = fit_translator(model, tokenizer, pairs, schedule, kept, bar)
            record: dict[str, JSON] = {
                "train_pairs": len(pairs[0]),
                "dev_pairs": len(pairs[1]),
                "dev_bleu": max(entry["bleu"] for entry in history),
                "processor_hours": sum(entry["processor_seconds"] for entry in history) / 3600,
                "epochs": history,
            }
            trained = Trained(model, tokenizer, record | {"schedule": asdict(schedule)})
            trained.save(folder)
    except ExhibitError as problem:
        if trained is None:
            raise
        raise UnsavedModelError(trained, target, problem) from problem
    shutil.rmtree(kept.folder, ignore_errors=True)
    return target


def _with_some_aside(pairs: Pairs, dev: object, holdout: float, seed: int) -> tuple[Pairs, Pairs]:
    """The pairs to learn from, and those to choose by."""
    if dev is not None:
        return pairs, read_pairs(dev)
    if len(pairs) < 2:
        raise BadRequestError("One pair was given and no development set; give at least two.")
    learn, aside = split_off(len(pairs), holdout, seed)
    return [pairs[place] for place in sorted(learn)], [pairs[place] for place in sorted(aside)]


def _settings(config: PretrainedConfig, schedule: TranslatorSchedule) -> dict[str, JSON]:
    """What must stay the same when a training goes on; it may become longer."""
    lasting = {"epochs", "patience"}
    sizes = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"}
    return {"model": sizes} | {k: v for k, v in asdict(schedule).items() if k not in lasting}


def _new(
    config: PretrainedConfig, pairs: Pairs, kept: Checkpoints
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with its first weights, and the vocabulary: learnt, or that of the checkpoints."""
    if kept.history():
        with quietly():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(kept.folder)
    else:
        tokenizer = learnt_vocabulary((text for pair in pairs for text in pair), config.vocab_size)
        kept.begin()
        tokenizer.save_pretrained(kept.folder)
    words: Options = {"vocab_size": len(tokenizer)}
    sized = type(config).from_dict({**config.to_dict(), **words})
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_config(sized)
    return model, tokenizer
