"""I10 and I11: what pods do."""

import random
from dataclasses import replace

from pinnace.api.resources import PODS
from pinnace.check.facts import PodFacts
from pinnace.check.history import Ran
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
    facts_of,
    pod_of,
    put_instead,
)


@breaks("I10")
def a_phase_goes_back(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(records, pod.key, replace(facts_of(pod), phase="Pending"))


@breaks("I10")
def what_has_ended_runs_again(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(append(records, pod.key, replace(facts_of(pod), phase="Failed")), pod.key, facts_of(pod))


@breaks("I10")
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


@breaks("I11")
def a_pod_runs_on_two_nodes(records: Records, rng: random.Random) -> Records:
    ran = rng.choice(all_of(records, Ran, lambda ran: ran.what == "started"))
    return put_instead(records, ran, ran, replace(ran, node="n9"))


@breaks("I11")
def a_pod_runs_where_it_is_not_bound(records: Records, rng: random.Random) -> Records:
    ran = rng.choice(all_of(records, Ran, lambda ran: ran.what == "started"))
    return put_instead(records, ran, replace(ran, node="n9"))
