"""What is left of a token in its hidden vector, and can it be found again?"""
