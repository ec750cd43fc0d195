"""Controllers: each compares the desired state of an object with its actual state, one key at a time, and writes the
difference.

`runtime.py` has the shared code of all controllers. Each other module is one controller, or a helper for several controllers.
"""
