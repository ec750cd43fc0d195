import asyncio

import pytest

from pinnace.cluster.processes import PortAllocator
from pinnace.runtime.http import StatusServer
from pinnace.verification.bench import BenchError, usage

TEXT = """
# HELP scheduler_bindings_total Completed binds, by result.
# TYPE scheduler_bindings_total counter
scheduler_bindings_total{result="bound"} 40.0
scheduler_bindings_total{result="fenced"} 2.0
"""


def test_samples_are_summed_by_labels() -> None:
    assert usage.sum_metric(TEXT, "scheduler_bindings_total") == 42
    assert usage.sum_metric(TEXT, "scheduler_bindings_total", result="fenced") == 2
    assert usage.sum_metric(TEXT, "no_such_total") is None


async def test_metric_of_a_process_is_read() -> None:
    server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop())
    server.start()
    try:
        assert await usage.read_metric(server.address, "python_info") == 1
        assert await usage.read_metric_by(server.address, "python_info", "major") == {"3": 1.0}
    finally:
        server.stop()


async def test_unreachable_process_is_an_error() -> None:
    with pytest.raises(BenchError):
        await usage.read_metric(f"127.0.0.1:{PortAllocator().next()}", "python_info")


def test_label_may_be_called_name() -> None:
    assert usage.sum_metric('stalls_total{name="a"} 2\nstalls_total{name="b"} 3\n', "stalls_total", name="a") == 2
