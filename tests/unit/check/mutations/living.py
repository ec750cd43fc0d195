"""L1 and L2, and runs that prove nothing."""

import random
from dataclasses import replace

from pinnace.api.resources import PODS, election_key
from pinnace.history.records import FaultRecord, PodFacts, RunInfo, RunPhase, StoredChange
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
    facts_of,
    pod_of,
    put_instead,
)
from tests.unit.check.world import KILL, REQUESTS


@breaks("L1")
def a_pod_never_runs(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    changed: Records = []
    for record in records:
        if isinstance(record, StoredChange) and isinstance(record.facts, PodFacts) and record.facts.uid == facts_of(pod).uid:
            record = replace(record, facts=replace(record.facts, phase="Pending", started=0))
        changed.append(record)
    return changed


@breaks("L1", "I8")
def a_pod_is_forgotten(records: Records, rng: random.Random) -> Records:
    """Created in the middle, and never bound, although there is room."""
    quiet = next(record for record in records if isinstance(record, RunPhase) and record.name == "quiet")
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    forgotten = append(records, PODS.key("default", "forgotten"), PodFacts("f", phase="Pending", requests=REQUESTS))
    pod = forgotten[-1]
    assert isinstance(pod, StoredChange)
    forgotten[-1] = replace(pod, at=quiet.at)
    return put_instead(forgotten, end, replace(end, at=end.at + 60.0))


@breaks("L1")
def a_pod_runs_too_late(records: Records, rng: random.Random) -> Records:
    """Everything after the faults takes a thousand times as long."""
    quiet = next(record for record in records if isinstance(record, RunPhase) and record.name == "quiet").at
    if not any(stored.at > quiet for stored in all_of(records, StoredChange)):
        raise IndexError("all of them ran already")
    slow: Records = []
    for record in records:
        if isinstance(record, StoredChange | RunPhase) and record.at > quiet:
            record = replace(record, at=quiet + (record.at - quiet) * 1000)
        slow.append(record)
    return slow


@breaks("L2")
def leadership_moves_for_nothing(records: Records, rng: random.Random) -> Records:
    moved: Records = []
    for record in records:
        if isinstance(record, FaultRecord):
            record = replace(record, began=record.began - 60.0, ended=record.began - 59.0)
        moved.append(record)
    return moved


@breaks("L2")
def nobody_leads(records: Records, rng: random.Random) -> Records:
    return append(records, election_key("scheduler"), None, at=-8.0)


@breaks("L2", "I3", "I4", "H")
def nobody_ever_leads(records: Records, rng: random.Random) -> Records:
    """Not once in the whole run, so that there is no election to look at."""
    return [r for r in records if not (isinstance(r, StoredChange) and r.key == election_key("scheduler"))]


def cut_short(records: Records, rng: random.Random) -> Records:
    """It ends with the last fault, while a pod that there is room for waits."""
    quiet = next(record for record in records if isinstance(record, RunPhase) and record.name == "quiet")
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    forgotten = a_pod_is_forgotten(records, rng)
    last = next(record for record in forgotten if isinstance(record, RunPhase) and record.name == "end")
    return put_instead(forgotten, last, replace(end, at=quiet.at + 0.1))


def unfired(records: Records) -> Records:
    """A fault was meant to happen, and did not; for the run as a whole, not for an invariant."""
    (run,) = all_of(records, RunInfo)
    return put_instead(records, run, replace(run, faults=(KILL, "clock-jump")))
