"""I13: how long two processes may run one pod."""

from collections.abc import Iterable
from typing import Literal

import pytest

from pinnace.api.resources import PODS
from pinnace.history.records import ContainerRun, FaultRecord, PodFacts, Record, RunInfo, RunPhase, StoredChange
from pinnace.verification.check.check import check_history
from pinnace.verification.check.pods import LINGER, STOP_TIMEOUT

KEY = PODS.key("default", "a")
RUN = RunInfo(0.0, doubling=("twin",))
END = 100.0


def ran(process: str, at: float, what: Literal["started", "stopped"]) -> ContainerRun:
    return ContainerRun(at, "n", "u", KEY, what, process)


def lives(process: str, until: float) -> ContainerRun:
    return ContainerRun(until, "", "", "", "alive", process)


def violations(records: Iterable[Record]) -> list[str]:
    report = check_history([RUN, *records, RunPhase(END, "end")], ["I13"])
    return [violation.text for verdict in report.violated_verdicts for violation in verdict.violations]


OLD, NEW = [ran("old", 1.0, "started"), lives("old", END)], [ran("new", 10.0, "started"), lives("new", END)]
LONG = 10.0 + LINGER + 0.5


@pytest.mark.parametrize(
    ("records", "violated"),
    [
        ([*OLD, *NEW], True),
        ([*OLD, ran("old", 10.0 + LINGER / 2, "stopped"), *NEW], False),
        ([*OLD, ran("old", LONG, "stopped"), *NEW], True),
        ([*OLD, ran("old", LONG, "stopped"), *NEW, FaultRecord(1, "freeze", "s", 9.0, 12.0)], False),
        ([*OLD, ran("old", LONG, "stopped"), *NEW, FaultRecord(1, "twin", "old", 9.0, 30.0)], True),
        ([*OLD, *NEW, FaultRecord(1, "freeze", "s", 9.0, 12.0)], True),  # the overlap lasts much longer than the fault
        ([ran("old", 1.0, "started"), lives("old", 10.5), *NEW], False),  # killed
        ([*OLD, ran("old", 20.0, "stopped"), ran("old", 30.0, "started")], False),  # restarted by the same process
        ([ran("", 1.0, "started"), ran("", 10.0, "started"), *NEW], False),  # without process ids, both may be the same process
    ],
)
def test_pod_runs_in_one_process_at_a_time(records: list[Record], violated: bool) -> None:
    assert bool(violations(records)) == violated


@pytest.mark.parametrize(
    ("gone", "last", "violated"),
    [
        (END - STOP_TIMEOUT - 1.0, END, True),
        (END - STOP_TIMEOUT + 1.0, END, False),  # the kubelet may not know of the deletion yet
        (END - STOP_TIMEOUT - 1.0, END - 50.0, False),  # the kubelet process was killed
    ],
)
def test_deleted_pod_must_stop(gone: float, last: float, violated: bool) -> None:
    there, away = StoredChange(1.0, 2, KEY, "d", 2, facts=PodFacts("u", "n")), StoredChange(gone, 3, KEY)
    runs = [ran("k", 2.0, "started"), lives("k", last)]
    assert bool(violations([there, away, *runs])) == violated
    assert not violations([there, away, *runs[:1], ran("k", gone + 0.1, "stopped"), lives("k", END)])
