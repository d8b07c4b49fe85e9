"""What classifiers of texts have in common: one vector is read from a text, and answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import ModelOutput

from exhibit_a.models.base import ReferenceModel, mean_loss
from exhibit_a.shapes import Hidden, TokenIds

Kept = Mapping[str, tuple[Tensor | None, ...]]  # a tensor for each layer, by its name in the output


@dataclass
class Reading:
    """What a classifier read from texts: the vectors that answer, and how it came to them."""

    answers: Tensor
    states: Kept
    maps: Kept
    output: type[ModelOutput] = SequenceClassifierOutput  # which has fields of these names


class TextClassifier(ReferenceModel):
    """A model that reads a vector from each text, which ``classifier`` maps to the labels."""

    classifier: nn.Linear

    def read(self, input_ids: TokenIds, attention_mask: Tensor | None) -> Reading:
        """The vectors that answer, with the states and the maps on the way to them."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: TokenIds,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: object,  # noqa: ARG002 - what other models want
    ) -> ModelOutput:
        """The score of every label."""
        reading = self.read(input_ids, attention_mask)
        logits = self.classifier(reading.answers)
        return reading.output(
            loss=mean_loss(logits, labels),
            logits=logits,
            **(reading.states if output_hidden_states else {}),
            **(reading.maps if output_attentions else {}),
        )


def of_stack(
    answers: Tensor, history: list[Hidden], maps: list[tuple[Tensor | None, ...]]
) -> Reading:
    """A reading by one stack of layers, each with one map."""
    attentions = tuple(weights for (weights,) in maps)
    return Reading(answers, {"hidden_states": tuple(history)}, {"attentions": attentions})
