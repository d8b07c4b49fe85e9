"""Reaching a model: its taps, its anatomy, its inputs, and leaving it as it was."""
