"""Verdicts after a restore: the remaining history, and the components that must notice the lost one."""

from collections.abc import Sequence

import pytest

from pinnace.api.resources import PODS
from pinnace.history.records import CallItem, CallRecord, ContainerRun, PodFacts, Record, RunPhase, StoredChange, WatchMessage
from pinnace.verification.chaos.scenarios.etcd import (
    LostInterval,
    Restore,
    drop_lost_interval,
    find_streams_without_restart,
    find_unknown_pods,
)
from pinnace.verification.check.index import History

GONE = LostInterval(copied=10.0, killed=20.0, back=21.0, well=25.0)
KEY = PODS.key("load", "a")


def call(began: float, ended: float, verb: str = "update") -> CallRecord:
    return CallRecord("c", 1, "s", verb, "pods", began, ended, items=(CallItem(KEY, 7, "uid", "digest"),))


def describe_limit(at: float, kind: str = "bookmark", revision: int = 5) -> WatchMessage:
    return WatchMessage("w", "w", at, kind, revision)


def ran(at: float, what: str, uid: str = "", process: str = "kubelet/1") -> ContainerRun:
    return ContainerRun(at, "n", uid, KEY, what, process)


NOTHING = History([])
THERE = History([StoredChange(1.0, 3, KEY, "digest", 3, facts=PodFacts("there"))])


@pytest.mark.parametrize(
    ("each", "outcome"),
    [
        (call(1.0, 9.0), "ok"),  # in the copy
        (call(9.0, 11.0), "unknown"),  # in flight during the copy
        (call(12.0, 13.0), ""),  # lost
        (call(19.0, 22.0), "unknown"),  # possibly executed after the restore
        (call(19.0, 22.0, "get"), ""),
        (call(26.0, 27.0), "ok"),
    ],
)
def test_calls_are_filtered_by_the_remaining_history(each: CallRecord, outcome: str) -> None:
    kept = [record for record in drop_lost_interval([each], GONE) if isinstance(record, CallRecord)]
    assert [record.outcome for record in kept] == ([outcome] if outcome else [])
    if outcome == "unknown":
        assert kept[0].items == (CallItem(KEY, 0, "uid", outcome="unknown"),)


def test_watch_events_between_copy_and_last_relist_are_dropped() -> None:
    """A server that has not noticed the restore may send lost events for up to a second."""
    early, late, again = describe_limit(22.0, "began", 0), describe_limit(24.0, "began", 0), describe_limit(28.0, "began", 0)
    words = [
        describe_limit(9.0),
        describe_limit(15.0),
        describe_limit(21.5),
        early,
        describe_limit(22.1, "synced", 400),
        late,
        describe_limit(24.1, "synced", 6),
        describe_limit(26.0),
        again,
    ]
    assert list(drop_lost_interval(words, GONE)) == [words[0], *words[5:]]
    assert not find_streams_without_restart(words, GONE)


@pytest.mark.parametrize(
    "words",
    [
        [describe_limit(9.0), describe_limit(15.0), describe_limit(26.0, revision=500)],  # the watch never restarted
        [describe_limit(9.0), describe_limit(22.0, "began", 500), describe_limit(26.0)],  # the watch resumed at a lost revision
        [
            describe_limit(9.0),
            describe_limit(26.0, revision=500),
            describe_limit(30.0, "began", 0),
            describe_limit(31.0),
        ],  # the watch restarted too late
    ],
)
def test_watch_that_continues_the_lost_history_is_reported(words: Sequence[WatchMessage]) -> None:
    assert find_streams_without_restart(words, GONE) == ["w"]


def test_running_pod_of_the_lost_history_is_reported() -> None:
    records = [ran(11.0, "started", "gone"), ran(12.0, "started", "there"), ran(30.0, "alive")]
    assert find_unknown_pods(records, THERE) == {"gone"}
    assert not find_unknown_pods([*records, ran(31.0, "stopped", "gone")], THERE)
    assert not find_unknown_pods([*records, ran(40.0, "alive", process="kubelet/2")], NOTHING), (
        "the kubelet process was replaced"
    )


@pytest.mark.parametrize(("lags", "runs", "good"), [(False, False, True), (True, False, False), (False, True, False)])
def test_lagging_watches_and_lost_pods_fail_the_scenario(lags: bool, runs: bool, good: bool) -> None:
    scenario = Restore()
    scenario._lagging = ["watcher-node"] if lags else []
    scenario._strangers = int(runs)
    assert all(expectation.good for expectation in scenario.judge_history(NOTHING)) == good


def test_phases_are_kept_and_lost_runs_are_dropped() -> None:
    phase: Record = RunPhase(12.0, "quiet")
    assert list(drop_lost_interval([phase, ran(12.0, "started", "a")], GONE)) == [phase]
