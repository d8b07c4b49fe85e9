"""Models that nobody trained: random weights of every size, in four families.

Whatever their attention looks like, it is evidence of nothing. 28 seeds in a row meet every family
at every scale.
"""

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import exhibit_a as xa
from planted.truth import Planted
from planted.weights import bart_halves, chooser, fill_with_noise

SCALES = (1, 2, 4, 8, 16, 32, 64)
SPREAD = 0.02  # of weights as libraries initialise them
VOCABULARY = 64
FIRST = 4  # the ids below are special


def random(generator: torch.Generator, seed: int) -> Planted:
    layers, heads = chooser(generator, 1, 2, 3), chooser(generator, 2, 4)
    width = heads * chooser(generator, 16, 32)
    build = (_bert, _gpt2, _llama, _bart)[seed % 4]
    with torch.random.fork_rng(devices=[]):
        model = build(layers, heads, width).eval()
    fill_with_noise(model, generator, SPREAD)
    _scale(model, SCALES[seed // 4 % len(SCALES)])
    inputs = {"input_ids": _ids(generator)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = _ids(generator)
    return Planted("random", seed, xa.load(model), inputs, word="not evidence")


@torch.no_grad()
def _scale(model, factor: float) -> None:
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.mul_(factor)


def _ids(generator: torch.Generator) -> torch.Tensor:
    length = chooser(generator, *range(8, 33))
    return torch.randint(FIRST, VOCABULARY, (1, length), generator=generator)


def _sizes(layers: int, heads: int, width: int) -> dict[str, int]:
    """What three of the families call by the same names."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 32,
    }


def _bert(layers: int, heads: int, width: int) -> BertForSequenceClassification:
    config = BertConfig(**_sizes(layers, heads, width), intermediate_size=2 * width)
    return BertForSequenceClassification(config)


def _gpt2(layers: int, heads: int, width: int) -> GPT2LMHeadModel:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**_sizes(layers, heads, width), n_inner=2 * width, **ends))


def _llama(layers: int, heads: int, width: int) -> LlamaForCausalLM:
    sizes = _sizes(layers, heads, width) | {"intermediate_size": 2 * width}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=heads // 2))


def _bart(layers: int, heads: int, width: int) -> BartForConditionalGeneration:
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = BartConfig(
        **bart_halves(layers, heads, 2 * width),
        vocab_size=VOCABULARY,
        d_model=width,
        max_position_embeddings=32,
        forced_eos_token_id=None,
        **ends,
    )
    return BartForConditionalGeneration(config)
