"""Do the strongest edges make words that turn any text?"""
