import asyncio

import pytest

from pinnace.bench import metrics
from pinnace.bench.errors import BenchError
from pinnace.cluster.ports import Ports
from pinnace.runtime.http import StatusServer

TEXT = """
# HELP scheduler_bindings_total Ends of bindings, by result.
# TYPE scheduler_bindings_total counter
scheduler_bindings_total{result="bound"} 40.0
scheduler_bindings_total{result="fenced"} 2.0
"""


def test_samples_are_summed_by_their_labels() -> None:
    assert metrics.total(TEXT, "scheduler_bindings_total") == 42
    assert metrics.total(TEXT, "scheduler_bindings_total", result="fenced") == 2
    assert metrics.total(TEXT, "no_such_total") is None


async def test_a_process_is_asked() -> None:
    server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop())
    server.start()
    try:
        assert await metrics.read(server.address, "python_info") == 1
        assert await metrics.read_by(server.address, "python_info", "major") == {"3": 1.0}
    finally:
        server.stop()


async def test_a_process_that_does_not_answer_gives_no_figure() -> None:
    with pytest.raises(BenchError):
        await metrics.read(f"127.0.0.1:{Ports().next()}", "python_info")


def test_a_label_may_be_called_name() -> None:
    assert metrics.total('stalls_total{name="a"} 2\nstalls_total{name="b"} 3\n', "stalls_total", name="a") == 2
