"""Training models: fine-tuning an encoder, or from nothing, also to translate."""
