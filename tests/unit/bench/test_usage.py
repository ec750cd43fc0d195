from pinnace.runtime.procfs import ProcessUsage
from pinnace.verification.bench.usage import subtract_samples


def test_usage_is_the_cpu_difference_and_the_overall_peak() -> None:
    result = subtract_samples({"a": ProcessUsage(1.0, 50.0)}, {"a": ProcessUsage(3.5, 70.0)})
    assert result == {"a": ProcessUsage(2.5, 70.0)}


def test_ended_process_is_left_out() -> None:
    assert subtract_samples({"a": ProcessUsage(1.0, 1.0), "b": ProcessUsage(1.0, 1.0)}, {"a": ProcessUsage(1.0, 1.0)}) == {
        "a": ProcessUsage(0.0, 1.0)
    }
