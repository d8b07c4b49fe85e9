"""Running the model: one pass remembered, and run again with something changed."""
