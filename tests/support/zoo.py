"""Tiny random models of many families, so that no test ever downloads one.

Weights are sharpened after initialisation: fresh models attend almost uniformly, and a uniform map
hides mistakes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

from exhibit_a import models

VOCABULARY, WIDTH, HEADS, LAYERS, INNER = 80, 32, 4, 3, 48

ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
    "num_labels": 3,
}
MARKS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = (
    {k: v for k, v in ENCODER.items() if k != "num_labels"} | MARKS | {"num_key_value_heads": 2}
)
GPT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TWO_STACKS: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
LOCAL: dict[str, Any] = {"sliding_window": 3}
IMAGE: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_labels": 3}
IMAGE_TOKEN = 6
TOWER: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "image_size": 16,
    "patch_size": 4,
}


@dataclass(frozen=True)
class Family:
    """How to build one family, and what it eats."""

    model: str
    options: dict[str, Any]
    eats: str = "text"

    def build(self, **extra: Any) -> hf.PreTrainedModel:
        torch.manual_seed(0)
        kind = _class(self.model)
        model = kind(kind.config_class(**self.options | extra))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim >= 2:
                    weight.mul_(4.0)
        return model.eval()

    def inputs(self) -> dict[str, torch.Tensor]:
        return _MEALS[self.eats]()


def _class(name: str) -> Any:
    return getattr(models, name, None) or getattr(hf, name)


def _classifier(family: str, **options: Any) -> Family:
    return Family(f"{family}ForSequenceClassification", ENCODER | options)


def _language_model(family: str, options: dict[str, Any], **more: Any) -> Family:
    return Family(f"{family}ForCausalLM", options | more)


REGISTRY = {
    "bert": _classifier("Bert"),
    "roberta": _classifier("Roberta", pad_token_id=1),
    "xlm-roberta": _classifier("XLMRoberta", pad_token_id=1),
    "distilbert": Family(
        "DistilBertForSequenceClassification",
        {
            "vocab_size": VOCABULARY,
            "dim": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "hidden_dim": INNER,
            "max_position_embeddings": 64,
            "num_labels": 3,
        },
    ),
    "electra": _classifier("Electra", embedding_size=16),
    "albert": _classifier("Albert", embedding_size=16, num_hidden_groups=1),
    "mobilebert": _classifier(
        "MobileBert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16
    ),
    "modernbert": _classifier(
        "ModernBert",
        **MARKS,
        cls_token_id=1,
        sep_token_id=2,
        global_attn_every_n_layers=2,
        local_attention=4,
    ),
    "gpt2": Family("GPT2LMHeadModel", GPT),
    "gpt2-upcast": Family(
        "GPT2LMHeadModel",
        GPT | {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ),
    "llama": _language_model("Llama", DECODER),
    "mistral": _language_model("Mistral", DECODER, **LOCAL),
    "qwen2": _language_model("Qwen2", DECODER),
    "qwen3": _language_model("Qwen3", DECODER, head_dim=8),
    "gemma2": _language_model("Gemma2", DECODER, head_dim=8, **LOCAL),
    "gpt-oss": _language_model(
        "GptOss", DECODER, head_dim=8, num_local_experts=4, num_experts_per_tok=2, **LOCAL
    ),
    "gpt-neox": _language_model(
        "GPTNeoX", {k: v for k, v in DECODER.items() if k != "num_key_value_heads"}
    ),
    "phi": _language_model("Phi", DECODER),
    "opt": _language_model(
        "OPT",
        {k: v for k, v in DECODER.items() if k not in ("num_key_value_heads", "intermediate_size")},
        ffn_dim=INNER,
        word_embed_proj_dim=WIDTH,
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": INNER,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "decoder_start_token_id": 0,
        },
        "two texts",
    ),
    "bart": Family(
        "BartForConditionalGeneration",
        TWO_STACKS | {"max_position_embeddings": 64},
        "two texts",
    ),
    "marian": Family("MarianMTModel", TWO_STACKS | {"max_position_embeddings": 64}, "two texts"),
    "whisper": Family(
        "WhisperForConditionalGeneration",
        TWO_STACKS | {"num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 16},
        "sound",
    ),
    "transformer": Family(
        "Transformer",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "encoder_layers": LAYERS,
            "decoder_layers": 2,
            "num_heads": HEADS,
            "d_ff": INNER,
        },
        "two texts",
    ),
    "identifiable": Family(
        "IdentifiableEncoder",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "num_layers": 2,
            "d_key": 6,
            "d_ff": INNER,
            "max_position_embeddings": 64,
            "num_labels": 3,
        },
    ),
    "vit": Family(
        "ViTForImageClassification",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": INNER,
        }
        | IMAGE,
        "image",
    ),
    "llava": Family(
        "LlavaForConditionalGeneration",
        {
            "image_token_id": IMAGE_TOKEN,
            "vision_feature_layer": -1,
            "vision_config": TOWER | {"model_type": "clip_vision_model", "projection_dim": 16},
            "text_config": DECODER | {"model_type": "llama"},
        },
        "text and image",
    ),
    "qwen2-vl": Family(
        "Qwen2VLForConditionalGeneration",
        {
            "image_token_id": IMAGE_TOKEN,
            "video_token_id": 4,
            "vision_start_token_id": 5,
            "vision_end_token_id": 7,
            "vision_config": {
                "depth": 2,
                "embed_dim": 32,
                "num_heads": HEADS,
                "hidden_size": WIDTH,
                "patch_size": 2,
                "mlp_ratio": 2,
            },
            "text_config": DECODER
            | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
        },
        "text and patches",
    ),
    "clip-text": Family(
        "CLIPTextModel",
        {k: v for k, v in ENCODER.items() if k != "num_labels"} | MARKS,
    ),
}

RECURRENT = {  # their encoders carry a state from token to token; only one layer attends
    "additive": Family(
        "AdditiveTranslator",
        {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_attention": 12, "encoder_layers": 2},
        "two texts",
    ),
    "recurrent": Family(
        "RecurrentClassifier",
        {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_attention": 12, "num_labels": 3},
    ),
}
REGISTRY |= RECURRENT

RELATIVE: dict[str, Any] = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}

SOFTMAX = {
    "deberta": _classifier("Deberta", **RELATIVE, max_relative_positions=16),
    "deberta-v2": _classifier("DebertaV2", **RELATIVE, position_buckets=8),
    "gptj": _language_model("GPTJ", GPT, rotary_dim=8),
    "gpt-neo": _language_model(
        "GPTNeo",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_layers": 2,
            "num_heads": HEADS,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 64,
            "window_size": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "bloom": _language_model(
        "Bloom",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
    ),
    "falcon": _language_model(
        "Falcon",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
        },
    ),
    "mpnet": _classifier("MPNet"),
    "roformer": _classifier("RoFormer"),
}

REFUSED = {
    "xlnet": Family(
        "XLNetForSequenceClassification",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "d_inner": INNER,
            "num_labels": 3,
        },
    ),
    "granite-swa": _language_model("GraniteSWA", DECODER, attention_multiplier=0.3, **LOCAL),
    "gated": _language_model("BitNet", DECODER),  # a norm stands before the output projection
}

FAMILIES = REGISTRY | SOFTMAX

EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MIXTURES = {  # in the contract; methods are tried on the families above, gpt-oss among them
    "mixtral": _language_model("Mixtral", DECODER, num_local_experts=4, num_experts_per_tok=2),
    "qwen3-moe": _language_model(
        "Qwen3Moe", DECODER, head_dim=8, num_experts=4, decoder_sparse_step=1, **EXPERTS
    ),
    "deepseek-v3": _language_model(
        "DeepseekV3",
        DECODER | {"num_key_value_heads": HEADS},
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        n_shared_experts=1,
        first_k_dense_replace=1,
        n_group=2,
        topk_group=1,
        **EXPERTS,
    ),
    "gemma3": Family("Gemma3ForCausalLM", DECODER | {"head_dim": 8} | LOCAL),
}
CONTRACT = FAMILIES | MIXTURES
HYBRID = {  # one layer of four attends, and a gate stands before its output projection
    "qwen3-next": _language_model(
        "Qwen3Next",
        DECODER | {"num_hidden_layers": 4},
        head_dim=8,
        num_experts=4,
        shared_expert_intermediate_size=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        **EXPERTS,
    ),
}


def _ids(seed: int, count: int) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(seed))


def _text() -> dict[str, torch.Tensor]:
    ids = _ids(0, 7)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _with_image(pieces: int) -> dict[str, torch.Tensor]:
    ids = _ids(0, 5)
    inside = torch.full((1, pieces), IMAGE_TOKEN)
    ids = torch.cat([ids[:, :2].clamp_min(8), inside, ids[:, 2:].clamp_min(8)], 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _with_patches() -> dict[str, torch.Tensor]:
    text = _with_image(6)
    return text | {
        "mm_token_type_ids": (text["input_ids"] == IMAGE_TOKEN).long(),
        "pixel_values": _noise(24, 24),  # packed: 4 × 6 patches of 3 colours × 2 moments × 2 × 2
        "image_grid_thw": torch.tensor([[1, 4, 6]]),
    }


_MEALS: dict[str, Callable[[], dict[str, torch.Tensor]]] = {
    "text": _text,
    "two texts": lambda: _text() | {"decoder_input_ids": _ids(1, 5)},
    "image": lambda: {"pixel_values": _noise(1, 3, 16, 16)},
    "text and image": lambda: _with_image(16) | {"pixel_values": _noise(1, 3, 16, 16)},
    "text and patches": _with_patches,
    "sound": lambda: {"input_features": _noise(1, 8, 24), "decoder_input_ids": _ids(1, 5)},
}
