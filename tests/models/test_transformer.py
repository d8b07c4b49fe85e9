"""The Transformer is the one that others built, and the one of the paper."""

import itertools

import pytest
import torch
import transformers as hf
from support.zoo import FAMILIES
from torch import nn
from torch.testing import assert_close

from exhibit_a.models import Transformer, TransformerConfig
from exhibit_a.models.transformer import positional_encoding

SIZES = {"vocab_size": 30, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "num_heads": 4}


def small(**options):
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**SIZES | {"d_ff": 24} | options)).eval()


def inputs():
    seeded = torch.Generator().manual_seed(0)
    source = torch.randint(4, 30, (3, 7), generator=seeded)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [1] * 3 + [0] * 4])
    return {
        "input_ids": source,
        "attention_mask": mask,
        "decoder_input_ids": torch.randint(4, 30, (3, 5), generator=seeded),
    }


@torch.no_grad()
def copy_attention(ours, theirs):
    """Our three projections as torch's one, and the output projection."""
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_layer(ours, theirs, attentions):
    for number, (mine, their_name) in enumerate(attentions.items(), 1):
        copy_attention(getattr(ours, mine), getattr(theirs, their_name))
        norm = getattr(ours, f"after_{mine}").norm
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    last = getattr(theirs, f"norm{len(attentions) + 1}")
    last.load_state_dict(ours.after_feed_forward.norm.state_dict())


def test_it_equals_torchs_transformer():
    model, batch = small(), inputs()
    theirs = nn.Transformer(
        16, 4, 2, 2, 24, dropout=0, batch_first=True, layer_norm_eps=model.config.layer_norm_eps
    ).eval()
    theirs.encoder.use_nested_tensor = False
    theirs.encoder.norm = theirs.decoder.norm = None  # post-norm layers end with one of their own
    for ours, layer in zip(model.encoder.layers, theirs.encoder.layers, strict=True):
        copy_layer(ours, layer, {"attention": "self_attn"})
    crossing = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
    for ours, layer in zip(model.decoder.layers, theirs.decoder.layers, strict=True):
        copy_layer(ours, layer, crossing)

    def embedded(ids):
        return model.embedding(ids) * 4 + positional_encoding(torch.arange(ids.shape[1]), 16)

    padding = batch["attention_mask"] == 0
    with torch.no_grad():
        states = theirs(
            embedded(batch["input_ids"]),
            embedded(batch["decoder_input_ids"]),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
            src_key_padding_mask=padding.float() * -1e9,
            memory_key_padding_mask=padding.float() * -1e9,
        )
        ours = model(**batch).logits
    assert_close(ours, states @ model.embedding.weight.T, rtol=1e-5, atol=1e-5)


def test_it_equals_marian_with_the_same_weights():
    model, batch = small(positions="halved", layer_norm_eps=1e-5), inputs()
    marian = hf.MarianMTModel(
        hf.MarianConfig(
            **{name: SIZES[name] for name in SIZES if name != "num_heads"},
            **{f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")},
            **{f"{stack}_ffn_dim": 24 for stack in ("encoder", "decoder")},
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
            max_position_embeddings=32,
        )
    ).eval()
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    attentions = {"self_attention": "self_attn", "attention": "self_attn"}
    attentions |= {"cross_attention": "encoder_attn"}
    weights = {"model.shared.weight": model.embedding.weight, "lm_head.weight": model.answer.weight}
    for stack in ("encoder", "decoder"):
        weights[f"model.{stack}.embed_tokens.weight"] = model.embedding.weight
        for number, layer in enumerate(getattr(model, stack).layers):
            there = f"model.{stack}.layers.{number}"
            for mine, their in attentions.items():
                if not hasattr(layer, mine):
                    continue
                for ours, theirs in names.items():
                    for kind, weight in getattr(getattr(layer, mine), ours).named_parameters():
                        weights[f"{there}.{their}.{theirs}.{kind}"] = weight
                for kind, weight in getattr(layer, f"after_{mine}").norm.named_parameters():
                    weights[f"{there}.{their}_layer_norm.{kind}"] = weight
            for kind, weight in layer.feed_forward.named_parameters():
                their = kind.replace("inner", "fc1").replace("outer", "fc2")
                weights[f"{there}.{their}"] = weight
            for kind, weight in layer.after_feed_forward.norm.named_parameters():
                weights[f"{there}.final_layer_norm.{kind}"] = weight
    missing = marian.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    assert {name.rpartition(".")[0] for name in missing.missing_keys} <= {
        "",
        "model.encoder.embed_positions",
        "model.decoder.embed_positions",
    }
    with torch.no_grad():
        assert_close(model(**batch).logits, marian(**batch).logits, rtol=1e-5, atol=1e-5)


def test_the_decoder_never_looks_ahead():
    model, batch = small(), inputs()
    with torch.no_grad():
        before = model(**batch).logits
        batch["decoder_input_ids"][:, 3:] = 7
        after = model(**batch).logits
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("name", ["transformer", "additive"])
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_and_uncached_generation_agree(name, beams):
    model, batch = FAMILIES[name].build(), inputs()
    del batch["decoder_input_ids"]
    written = [
        model.generate(**batch, num_beams=beams, max_new_tokens=9, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*written)
    assert len(set(written[0].flatten().tolist())) > 3


@pytest.mark.parametrize("name", ["transformer", "additive"])
def test_a_wide_beam_finds_the_likeliest_of_all_sentences(name):
    """Every sentence of up to three tokens from a vocabulary of six, counted out."""
    model = FAMILIES[name].build(vocab_size=6, eos_token_id=2, pad_token_id=0)
    source = torch.tensor([[3, 5, 4, 2]])
    scores = {}
    for sentence in itertools.product(range(6), repeat=3):
        end = sentence.index(2) + 1 if 2 in sentence else 3
        with torch.no_grad():
            logits = model(
                source, decoder_input_ids=torch.tensor([(1, *sentence[: end - 1])])
            ).logits
        chances = logits[0].log_softmax(-1)[range(end), list(sentence[:end])].sum()
        scores[sentence[:end]] = float(chances) / end
    best = max(scores, key=scores.get)
    found = model.generate(
        source,
        num_beams=36,
        num_return_sequences=1,
        max_new_tokens=3,
        length_penalty=1.0,
        early_stopping="never",
    )
    assert tuple(found[0, 1 : 1 + len(best)].tolist()) == best
