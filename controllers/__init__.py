"""Controllers: each compares the wanted state of an object with the actual state, one key at a time, and writes the difference.

`runtime.py` has what all controllers share. Each other module is one controller, or a helper that several controllers need.
"""
