"""Which attention edges does the answer rest on?"""
