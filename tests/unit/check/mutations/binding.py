"""I1 to I4: binds and elections."""

import random
from dataclasses import replace

from pinnace.api.resources import ELECTIONS_PREFIX, NODES, PODS, election_key
from pinnace.history.records import ElectionFacts, PodFacts, StoredChange
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
    bind_new,
    facts_of,
    leader_of,
    pod_of,
)
from tests.unit.check.world import REQUESTS


@breaks("I1")
def a_second_bind(records: Records, rng: random.Random) -> Records:
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    return append(records, pod.key, replace(facts_of(pod), node="n1" if facts_of(pod).node == "n0" else "n0"))


@breaks("I1", "I3")
def a_bind_is_undone(records: Records, rng: random.Random) -> Records:
    """Of a pod that is not running, so that nothing else is strange about it."""
    key = PODS.key("default", "new")
    records = append(records, key, PodFacts("new", phase="Pending"))
    records = append(records, key, PodFacts("new", phase="Pending", node="n0"))
    return append(records, key, PodFacts("new", phase="Pending"))


@breaks("I1")
def a_uid_lives_twice(records: Records, rng: random.Random) -> Records:
    """A pod that was deleted is there again with its old uid, bound anew."""
    pod = pod_of(records, rng, lambda facts: facts.phase == "Running")
    again = replace(facts_of(pod), phase="Pending", node="n1", token=leader_of(records).create_revision)
    return append(append(records, pod.key, None), pod.key, again)


@breaks("I2")
def too_much_for_a_node(records: Records, rng: random.Random) -> Records:
    token = leader_of(records).create_revision
    pods = (*REQUESTS[:1], ("cpu", 1500))
    for number in range(4):
        key = PODS.key("default", f"big{number}")
        facts = PodFacts(f"big{number}", phase="Pending", requests=pods)
        records = append(records, key, facts)
        records = append(records, key, replace(facts, node="n1", election="scheduler", token=token))
    return records


@breaks("I2")
def too_much_for_a_node_that_is_gone(records: Records, rng: random.Random) -> Records:
    """Its room is not forgotten with it: a scheduler that has not heard of the deletion counts with it, too."""
    return too_much_for_a_node(append(records, NODES.prefix + "n1", None), rng)


@breaks("I2")
def a_resource_that_the_node_has_not(records: Records, rng: random.Random) -> Records:
    return bind_new(records, leader_of(records).create_revision, (("pods", 1), ("example.com/gpu", 1)))


@breaks("I3")
def a_bind_without_a_fence(records: Records, rng: random.Random) -> Records:
    key, facts = PODS.key("default", "new"), PodFacts("new", phase="Pending", requests=REQUESTS)
    return append(append(records, key, facts), key, replace(facts, node="n1"))


@breaks("I3")
def a_bind_by_a_deposed_leader(records: Records, rng: random.Random) -> Records:
    return bind_new(records, all_of(records, StoredChange, lambda s: s.key.startswith(ELECTIONS_PREFIX))[0].create_revision)


@breaks("I3")
def a_bind_when_nobody_leads(records: Records, rng: random.Random) -> Records:
    token = leader_of(records).create_revision
    return bind_new(append(records, election_key("scheduler"), None), token)


@breaks("I3")
def a_bind_with_a_token_of_nobody(records: Records, rng: random.Random) -> Records:
    return bind_new(records, leader_of(records).create_revision + 1)


@breaks("I3")
def a_bind_under_the_election_of_the_controllers(records: Records, rng: random.Random) -> Records:
    """With a token that is valid."""
    key = election_key("controllers")
    records = append(records, key, ElectionFacts("controllers-0", 77), lease=77)
    token = all_of(records, StoredChange, lambda stored: stored.key == key)[-1].create_revision
    return bind_new(records, token, election="controllers")


@breaks("I3")
def a_bind_of_another_schedulers_pod(records: Records, rng: random.Random) -> Records:
    return bind_new(records, leader_of(records).create_revision, scheduler="another")


@breaks("I4")
def a_token_with_two_holders(records: Records, rng: random.Random) -> Records:
    leader = leader_of(records)
    assert isinstance(leader.facts, ElectionFacts)
    return append(records, leader.key, replace(leader.facts, holder="usurper"), lease=leader.lease)


@breaks("I4", "H")
def a_token_is_used_again(records: Records, rng: random.Random) -> Records:
    first, last = all_of(records, StoredChange, lambda s: s.key.startswith(ELECTIONS_PREFIX) and bool(s.digest))[::2]
    records = append(records, last.key, None)
    return append(records, last.key, first.facts, lease=first.lease, create_revision=first.create_revision)


@breaks("I4")
def a_leadership_without_its_lease(records: Records, rng: random.Random) -> Records:
    leader = leader_of(records)
    return append(records, leader.key, leader.facts, lease=0)
