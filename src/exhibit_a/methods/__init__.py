"""The methods, one room for each question, and the registry that says what a method is."""
