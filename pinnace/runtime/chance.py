"""Where chance comes from, for whoever is given none."""

import random


def generator() -> random.Random:
    """A generator of its own, seeded from the process's: seed that one (`random.seed`), and a run can be repeated."""
    return random.Random(random.getrandbits(64))
