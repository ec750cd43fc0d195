"""How many random pairs of a pod and a node each plugin is tried on, beside its plain form."""

import os

PAIRS = int(os.environ.get("PINNACE_PAIRS", "4000"))
"""`make agreement` tries 100,000."""
TIMEOUT = 60 + PAIRS // 400
"""Seconds; on a busy machine."""
