"""What does a translator make of a text, and how good is it? Beam search, and BLEU by sacrebleu."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from exhibit_a.extras import extra
from exhibit_a.progress import Progress, tell

BATCH = 64  # sentences translated together


@torch.no_grad()
def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    *,
    beams: int = 1,
    longest: int = 80,
    progress: Progress | None = None,
) -> list[str]:
    """The translation of each sentence, as plain text."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(sentences)), key=lambda place: len(sentences[place]))
    translations = [""] * len(sentences)
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        inputs = tokenizer(
            [sentences[place] for place in places], return_tensors="pt", padding=True
        )
        written = model.generate(  # type: ignore[operator]  # not declared for every model
            input_ids=inputs["input_ids"].to(model.device),
            attention_mask=inputs["attention_mask"].to(model.device),
            num_beams=beams,
            do_sample=False,
            max_new_tokens=longest,
        )
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        for place, text in zip(places, texts, strict=True):
            translations[place] = text.strip()
        tell(progress, start + len(places), len(order))
    model.train(was_training)
    return translations


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of a corpus as sacrebleu defines it: cased, on plain text, by its own tokeniser."""
    score: float = extra("sacrebleu").corpus_bleu(list(translations), [list(references)]).score
    return score
