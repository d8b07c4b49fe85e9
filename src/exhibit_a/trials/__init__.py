"""All methods on one text, and a verdict on every head."""
