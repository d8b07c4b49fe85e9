"""Reference models: from additive attention to the Transformer, as ordinary PreTrainedModels.

Whoever imports this room can load them with transformers' Auto classes; importing the package alone
registers nothing.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from exhibit_a.models.additive import AdditiveTranslator
from exhibit_a.models.configs import (
    AdditiveConfig,
    IdentifiableConfig,
    RecurrentConfig,
    TransformerConfig,
)
from exhibit_a.models.identifiable import IdentifiableEncoder
from exhibit_a.models.recurrent import RecurrentClassifier
from exhibit_a.models.transformer import Transformer

for auto, model in (
    (AutoModelForSeq2SeqLM, Transformer),
    (AutoModelForSeq2SeqLM, AdditiveTranslator),
    (AutoModelForSequenceClassification, IdentifiableEncoder),
    (AutoModelForSequenceClassification, RecurrentClassifier),
):
    AutoConfig.register(model.config_class.model_type, model.config_class, exist_ok=True)
    AutoModel.register(model.config_class, model, exist_ok=True)
    auto.register(model.config_class, model, exist_ok=True)

__all__ = [
    "AdditiveConfig",
    "AdditiveTranslator",
    "IdentifiableConfig",
    "IdentifiableEncoder",
    "RecurrentClassifier",
    "RecurrentConfig",
    "Transformer",
    "TransformerConfig",
]
