"""Shuffling attention: what must hold before any number of it is believed."""

import math

import pytest
import torch
import zoo
from conftest import subject_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples import Example
from exhibit_a.methods import permutation
from exhibit_a.methods.distances import (
    bootstrap_interval,
    farthest_divergence,
    jensen_shannon,
    sign_flip_p_value,
    total_variation,
)
from exhibit_a.methods.permutation import permutation_test, shuffled, uniform
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay

WORDS = [f"w{i}" for i in range(70)]


def tokenizer():
    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*marks, *WORDS])}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def talking(name):
    return load(subject_of(name).model, tokenizer=tokenizer())


def sentences(count, *, longest=9, labels=3):
    seeded = torch.Generator().manual_seed(5)
    data = []
    for number in range(count):
        length = int(torch.randint(3, longest, (), generator=seeded))
        picked = torch.randint(len(WORDS), (length,), generator=seeded).tolist()
        text = " ".join(WORDS[i] for i in picked)
        data.append(Example(str(number), text, label=str(number % labels)))
    return data
