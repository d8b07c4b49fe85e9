"""The sizes of a reference model, and which of them fit together."""

from transformers import PretrainedConfig

from exhibit_a.errors import require_choice


class ReferenceConfig(PretrainedConfig):
    """Sizes of a reference model."""

    # Every configuration takes more options than the fields of its class (num_labels, dtype, …),
    # which a check of its signature would refuse.
    __no_type_check__ = True
    attribute_map = {  # noqa: RUF012 - a table of the base class
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
    }

    vocab_size: int = 20000
    d_model: int = 512
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: object) -> None:
        """Refuse sizes that do not fit together."""
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        self.check_sizes()

    def check_sizes(self) -> None:
        """Raise where fields of this configuration do not fit together."""


class TranslatorConfig(ReferenceConfig):
    """Sizes and special tokens of a translator."""

    attribute_map = {  # noqa: RUF012 - a table of the base class
        **ReferenceConfig.attribute_map,
        "num_hidden_layers": "encoder_layers",
    }
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    vocab_size: int = 37000
    encoder_layers: int = 1
    dropout: float = 0.0
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1


class LayersConfig(ReferenceConfig):
    """Sizes of layers that look, and then think at each position."""

    num_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-6


class TransformerConfig(TranslatorConfig, LayersConfig):
    """Sizes of a `Transformer`; the defaults are the paper's base model."""

    model_type = "exhibit-transformer"

    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = 0.1
    positions: str = "interleaved"  # or "halved": all sines, then all cosines

    def check_sizes(self) -> None:
        """Equal heads, and a known layout of positions."""
        require_choice("positions", self.positions, ("interleaved", "halved"))
        require_multiple(self.d_model, self.num_heads, "heads")


class BothWaysConfig(ReferenceConfig):
    """Sizes of a model that reads a text from both sides, and looks at it by additive attention."""

    d_attention: int = 128

    def check_sizes(self) -> None:
        """Two equal directions."""
        require_multiple(self.d_model, 2, "directions")


class AdditiveConfig(TranslatorConfig, BothWaysConfig):
    """Sizes of an `AdditiveTranslator`: one width for embeddings, annotations and states."""

    model_type = "exhibit-additive"

    vocab_size: int = 30000
    d_model: int = 1000
    d_attention: int = 1000
    readout: str = "maxout"  # or "tanh"

    def check_sizes(self) -> None:
        """A known way to read out."""
        super().check_sizes()
        require_choice("readout", self.readout, ("maxout", "tanh"))


class IdentifiableConfig(LayersConfig):
    """Sizes of an `IdentifiableEncoder`; the defaults are those of the released code."""

    model_type = "exhibit-identifiable"

    d_model: int = 32
    num_layers: int = 1
    num_heads: int = 4
    d_key: int = 16
    heads: str = "add"  # or "con"
    d_ff: int = 256

    def check_sizes(self) -> None:
        """Equal heads where they stand side by side, and a known way to join them."""
        require_choice("way to join heads", self.heads, ("con", "add"))
        if self.heads == "con":
            require_multiple(self.d_model, self.num_heads, "heads")

    @property
    def d_value(self) -> int:
        """The width of one head's values: d where heads are added, d/H where they are joined."""
        return self.d_model if self.heads == "add" else self.d_model // self.num_heads


class RecurrentConfig(BothWaysConfig):
    """Sizes of a `RecurrentClassifier`; d_model is that of embeddings and annotations."""

    model_type = "exhibit-recurrent"

    d_model: int = 256
    num_layers: int = 1
    attention: str = "additive"  # or "dot"
    dropout: float = 0.3

    def check_sizes(self) -> None:
        """A known kind of attention."""
        super().check_sizes()
        require_choice("attention", self.attention, ("additive", "dot"))


def require_multiple(width: int, parts: int, what: str) -> None:
    """Refuse a width that cannot be cut into equal parts."""
    if width % parts:
        raise ValueError(f"A width of {width} cannot be cut into {parts} {what}.")
