"""I10, I11 and I13: what pods do."""

import random
from dataclasses import replace

from pinnace.api.resources import PODS
from pinnace.history.records import ContainerRun, PodFacts, RunPhase, StoredChange
from pinnace.verification.check.pods import LINGER, STOP_TIMEOUT
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
    end_of,
    facts_of,
    pod_of,
    put_instead,
)
from tests.unit.check.world import KUBELET


@breaks("I10")
def a_phase_goes_back(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(records, pod.key, replace(facts_of(pod), phase="Pending"))


@breaks("I10")
def what_has_ended_runs_again(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(append(records, pod.key, replace(facts_of(pod), phase="Failed")), pod.key, facts_of(pod))


@breaks("I10", "I13")
def running_nowhere(records: Records, rng: random.Random) -> Records:
    key = PODS.key("default", "new")
    return append(append(records, key, PodFacts("new", phase="Pending")), key, PodFacts("new", phase="Running"))


@breaks("I10")
def two_kubelets_accept_a_pod(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(records, pod.key, replace(facts_of(pod), started=facts_of(pod).started + 7))


@breaks("I10")
def a_write_is_applied_twice(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(records, pod.key, pod.facts, digest=pod.digest)


@breaks("I11", "I13")
def a_pod_runs_on_two_nodes(records: Records, rng: random.Random) -> Records:
    """On the second node it also survives its deletion, if it is deleted."""
    ran = rng.choice(all_of(records, ContainerRun, lambda ran: ran.what == "started"))
    return put_instead(records, ran, ran, replace(ran, node="n9"))


@breaks("I11")
def a_pod_runs_where_it_is_not_bound(records: Records, rng: random.Random) -> Records:
    ran = rng.choice(all_of(records, ContainerRun, lambda ran: ran.what == "started"))
    return put_instead(records, ran, replace(ran, node="n9"))


@breaks("I13")
def two_processes_run_a_pod(records: Records, rng: random.Random) -> Records:
    """A twin has taken it over, and the one that was evicted goes on."""
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    started = next(ran for ran in all_of(records, ContainerRun) if ran.what == "started" and ran.uid == facts_of(pod).uid)
    now, _ = end_of(records)
    twin = [replace(started, at=now, process="twin"), ContainerRun(now + LINGER + 1.0, "", "", "", "alive", "twin")]
    return [*records, *twin, ContainerRun(now + LINGER + 1.0, "", "", "", "alive", KUBELET)]


@breaks("I13")
def a_pod_runs_on_when_it_is_gone(records: Records, rng: random.Random) -> Records:
    """It is deleted, and is never stopped."""
    gone = {stored.key for stored in all_of(records, StoredChange) if not stored.digest}
    stopped = rng.choice(all_of(records, ContainerRun, lambda ran: ran.what == "stopped" and ran.key in gone))
    deleted = max(stored.at for stored in all_of(records, StoredChange) if stored.key == stopped.key and not stored.digest)
    (end,) = (phase for phase in all_of(records, RunPhase) if phase.name == "end")
    late = replace(end, at=deleted + STOP_TIMEOUT + 1.0)
    return put_instead(put_instead(records, stopped), end, ContainerRun(late.at, "", "", "", "alive", KUBELET), late)


@breaks("I13")
def a_pod_is_running_that_nobody_has_started(records: Records, rng: random.Random) -> Records:
    uid = facts_of(pod_of(records, rng, lambda facts: facts.phase == "Running")).uid
    return [record for record in records if not (isinstance(record, ContainerRun) and record.uid == uid)]
