"""Which heads does the model need, and which can go?"""
