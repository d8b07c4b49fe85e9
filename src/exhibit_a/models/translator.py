"""What translators have in common: a source that is read, and a target written token by token.

The encoder reads the source once. The decoder is given what is written so far and what the encoder
read, and the map from its states to scores of tokens shares its weights with both embeddings.
"""

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from exhibit_a.models.base import ReferenceModel, mean_loss, shifted_right
from exhibit_a.models.configs import TranslatorConfig
from exhibit_a.shapes import SourceIds, TargetIds


class Translator(ReferenceModel, GenerationMixin):
    """A translator, whole: source text in, target text out.

    Its kind is named by two halves, each with an embedding that is tied to this one; see
    `TransformerEncoder` and `TransformerDecoder` for what they take and give.
    """

    config: TranslatorConfig
    reads: type[ReferenceModel]
    writes: type[ReferenceModel]
    _tied_weights_keys = {  # noqa: RUF012
        "encoder.embedding.weight": "embedding.weight",
        "decoder.embedding.weight": "embedding.weight",
        "answer.weight": "embedding.weight",
    }

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = self.reads(config)
        self.decoder = self.writes(config)
        self.answer = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.finish()

    def forward(
        self,
        input_ids: SourceIds | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: TargetIds | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: TargetIds | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: object,  # noqa: ARG002 - generate passes what other models want
    ) -> Seq2SeqLMOutput:
        """The score of every token of the vocabulary at every place of the target."""
        if encoder_outputs is None:
            assert input_ids is not None
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask,
                output_hidden_states=output_hidden_states,
                output_attentions=output_attentions,
            )
        source = encoder_outputs.last_hidden_state
        if decoder_input_ids is None:
            assert labels is not None
            decoder_input_ids = shifted_right(labels, self.config)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        decoded = self.decoder(
            decoder_input_ids,
            source,
            attention_mask=decoder_attention_mask,
            source_mask=attention_mask,
            past_key_values=past_key_values,
        )
        logits = self.answer(decoded.last_hidden_state)
        return Seq2SeqLMOutput(
            loss=mean_loss(logits, labels),
            logits=logits,
            past_key_values=past_key_values,
            decoder_hidden_states=decoded.hidden_states if output_hidden_states else None,
            decoder_attentions=decoded.attentions if output_attentions else None,
            cross_attentions=decoded.cross_attentions if output_attentions else None,
            encoder_last_hidden_state=source,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def get_output_embeddings(self) -> nn.Linear:
        """The map from states to scores of tokens."""
        return self.answer

    def prepare_decoder_input_ids_from_labels(self, labels: TargetIds) -> TargetIds:
        """What the decoder is given when these are the right answers."""
        return shifted_right(labels, self.config)
