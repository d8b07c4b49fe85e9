"""Reaching the model: taps into attention, and what the model is made of."""
