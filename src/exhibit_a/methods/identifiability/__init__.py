"""How much of attention can reach the output, and could it have been another?"""
