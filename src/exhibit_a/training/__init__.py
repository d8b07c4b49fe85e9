"""Fine-tuning an encoder on labelled text."""
