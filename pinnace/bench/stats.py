"""Percentiles and medians of samples. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Of samples in seconds."""

    count: int
    p50: float
    p99: float
    max: float


def summarize(samples: Sequence[float]) -> Summary:
    """Raises ValueError without samples: nothing measured is not a figure of zero."""
    ordered = sorted(samples)
    return Summary(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile: a value that really occurred, and that at least this fraction does not exceed.

    Source: https://en.wikipedia.org/wiki/Percentile#The_nearest-rank_method
    """
    if not ordered:
        raise ValueError("no samples")
    return ordered[max(math.ceil(fraction * len(ordered)), 1) - 1]
