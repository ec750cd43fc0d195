"""How many examples property tests run: few in `make test`, many in `make properties`."""

import os

FACTOR = float(os.environ.get("PINNACE_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return the number of examples for `max_examples`: `count` in `make test`. PINNACE_EXAMPLES multiplies it."""
    return max(1, round(count * FACTOR))
