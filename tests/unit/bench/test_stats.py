import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.verification.bench.report import percentile, summarize


def test_nearest_rank_percentiles() -> None:
    ordered = [float(i) for i in range(1, 101)]
    assert [percentile(ordered, f) for f in (0.0, 0.01, 0.5, 0.99, 1.0)] == [1.0, 1.0, 50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentile_is_a_sample_and_covers_its_fraction(samples: list[float], fraction: float) -> None:
    ordered = sorted(samples)
    result = percentile(ordered, fraction)
    assert result in samples
    assert sum(sample <= result for sample in samples) >= fraction * len(samples) - 1e-6


def test_summary_does_not_depend_on_order() -> None:
    samples = [float(i) for i in range(1000)]
    random.Random(1).shuffle(samples)
    summary = summarize(samples)
    assert (summary.count, summary.p50, summary.p99, summary.max) == (1000, 499.0, 989.0, 999.0)


def test_empty_measurement_has_no_figure() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarize([])
