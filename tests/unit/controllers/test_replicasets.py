"""The pods that a replica set creates and deletes, and its status."""

import pytest

from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import COST_ANNOTATION
from pinnace.client.informer import Delta
from pinnace.controllers.podcontrol import BURST, select_pods_to_delete
from pinnace.controllers.pods import PodProperties, PodPropertiesCache, compute_pod_properties, pod_deletion_cost
from pinnace.controllers.replicaset import (
    BACKOFF_MAX,
    MEMORY,
    SKEW,
    ReplicaFailure,
    calculate_status,
    plan_replica_set_sync,
    seconds_until_available,
)
from tests.builders import PodBuilder, make_pod
from tests.workloads import deleting, make_replica_set, named, pod_of, running

NOW = 10_000.0
WEB = make_replica_set("web", replicas=3)


def pods(*builders: PodBuilder) -> list[PodProperties]:
    return [compute_pod_properties(builder.build()) for builder in builders]


# --- number of pods


def test_terminated_and_terminating_pods_are_replaced() -> None:
    own = pods(
        pod_of(WEB, "a"), pod_of(WEB, "b").phase("Failed"), pod_of(WEB, "c").phase("Succeeded"), pod_of(WEB, "d").terminating()
    )
    assert plan_replica_set_sync(WEB, own, own, NOW).create == 2


def failures(count: int, at: float = NOW) -> list[PodProperties]:
    return pods(*(pod_of(WEB, f"failed-{number}").created(at).phase("Failed") for number in range(count)))


@pytest.mark.parametrize(
    ("failed", "wait"),
    [
        (0, None),
        (3, None),
        (5, None),
        (6, 1.0),
        (8, 1.0),
        (9, 2.0),
        (12, 4.0),
        (30, 256.0),
        (33, BACKOFF_MAX),
        (900, BACKOFF_MAX),
    ],
)
def test_repeatedly_failing_pods_are_replaced_with_backoff(failed: int, wait: float | None) -> None:
    wanted = plan_replica_set_sync(WEB, failures(failed), [], NOW)
    assert (wanted.create, wanted.wait) == ((3, None) if wait is None else (0, wait))


def test_failed_pods_are_replaced_after_the_backoff_and_forgotten_later() -> None:
    assert plan_replica_set_sync(WEB, failures(9, NOW - 2.0), [], NOW).create == 3
    assert plan_replica_set_sync(WEB, failures(900, NOW - MEMORY), [], NOW).create == 3


def test_future_timestamps_do_not_stop_the_controller() -> None:
    """The clock of a server was an hour ahead and is corrected. Otherwise no pod would be replaced for an hour."""
    assert plan_replica_set_sync(WEB, failures(900, NOW + 3600.0), [], NOW).create == 3
    assert plan_replica_set_sync(WEB, failures(900, NOW + SKEW), [], NOW).wait == SKEW + BACKOFF_MAX


def test_available_pods_do_not_wait() -> None:
    own = [*pods(*(running(pod_of(WEB, name)) for name in "abc")), *failures(9)]
    assert plan_replica_set_sync(WEB, own, own, NOW).wait is None


def test_surplus_pods_are_deleted() -> None:
    own = pods(*(running(pod_of(WEB, name)) for name in "abc"), pod_of(WEB, "pending"))
    wanted = plan_replica_set_sync(WEB, own, own, NOW)
    assert (wanted.create, named(wanted.delete)) == (0, ["pending"])
    assert plan_replica_set_sync(WEB, own[:3], own[:3], NOW).delete == ()


def test_sync_creates_and_deletes_at_most_a_burst() -> None:
    big = make_replica_set("big", replicas=2 * BURST)
    assert plan_replica_set_sync(big, [], [], NOW).create == BURST
    none = make_replica_set("big", replicas=0)
    own = pods(*(pod_of(none, str(number)) for number in range(BURST + 1)))
    assert len(plan_replica_set_sync(none, own, own, NOW).delete) == BURST


def test_terminating_replica_set_changes_nothing() -> None:
    leaving = make_replica_set("web", replicas=3)
    deleting(leaving)
    wanted = plan_replica_set_sync(leaving, [], [], NOW)
    assert (wanted.create, wanted.delete) == (0, ())


# --- order of deletion


def base(name: str) -> PodBuilder:
    return make_pod(name).created(1.0).node("n1").phase("Running").ready_since(1.0)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (make_pod("x"), make_pod("x").node("n1")),
        (make_pod("x").node("n1"), make_pod("x").node("n1").phase("Running")),
        (make_pod("x").node("n1").phase("Unknown"), make_pod("x").node("n1").phase("Running")),
        (make_pod("x").node("n1").phase("Running"), base("x")),
        (base("x").annotation(COST_ANNOTATION, "-5"), base("x")),
        (base("x"), base("x").annotation(COST_ANNOTATION, "10")),
        (base("x"), base("x").node("n2")),
        (make_pod("x").node("n1").phase("Running").ready_since(NOW - 10).created(1.0), base("x")),
        (base("x").created(NOW - 10), base("x")),
    ],
    ids=["unassigned", "pending", "unknown", "not ready", "cheap", "cheaper", "doubled up", "ready since", "younger"],
)
def test_least_useful_pod_is_deleted_first(first: PodBuilder, then: PodBuilder) -> None:
    pair = pods(first.uid("z"), then.uid("a"))
    crowd = pods(make_pod("y").node("n1"), make_pod("y2").node("n1").phase("Failed"), make_pod("y3").node("n2").terminating())
    for order in (pair, pair[::-1]):
        assert [pod.metadata.uid for pod in select_pods_to_delete(order, 1, [*pair, *crowd], NOW)] == ["z"]


def test_pod_with_more_restarts_is_deleted_first() -> None:
    restarted = base("x").uid("z").build()
    restarted.status.containerStatuses.add(name="c0", restartCount=3)
    assert select_pods_to_delete([*pods(base("x").uid("a")), compute_pod_properties(restarted)], 1, [], NOW) == [restarted]


def test_pods_of_similar_age_are_chosen_by_uid() -> None:
    pair = pods(base("x").created(NOW - 4000).uid("a"), base("x").created(NOW - 3900).uid("b"))
    assert select_pods_to_delete(pair, 1, pair, NOW) == [pair[0].pod]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 7), ("-7", -7), ("", 0), ("+7", 0), ("07", 0), ("1e3", 0), ("2147483648", 0), ("-2147483648", -(2**31)), ("-", 0)],
)
def test_deletion_cost_is_a_32_bit_integer_or_zero(text: str, expected: int) -> None:
    assert pod_deletion_cost(make_pod("x").annotation(COST_ANNOTATION, text).build()) == expected


# --- status


def test_status_counts_the_pods() -> None:
    patient = make_replica_set("web", replicas=3, minReadySeconds=30)
    patient.spec.template.metadata.labels["tier"] = "front"
    own = pods(
        running(pod_of(patient, "a"), since=NOW - 31),
        running(pod_of(patient, "b", labels={"app": "web"}), since=NOW - 10),
        running(pod_of(patient, "c"), since=NOW - 5),
        pod_of(patient, "d"),
        pod_of(patient, "e").terminating(),
        pod_of(patient, "f").phase("Failed"),
    )
    status = calculate_status(patient, own, None, NOW)
    counted = (status.replicas, status.fullyLabeledReplicas, status.readyReplicas, status.availableReplicas)
    assert counted == (4, 3, 3, 1)
    assert (status.terminatingReplicas, status.observedGeneration) == (1, 1)
    assert seconds_until_available(patient, own, NOW) == 20.0


def test_failure_condition_keeps_its_transition_time_and_is_removed_on_success() -> None:
    web = make_replica_set("web")
    web.status.conditions.add(type="Mine", status="True")
    web.status.CopyFrom(calculate_status(web, [], ReplicaFailure("FailedCreate", "exceeded quota"), NOW))
    assert [(condition.type, condition.reason) for condition in web.status.conditions] == [
        ("Mine", ""),
        ("ReplicaFailure", "FailedCreate"),
    ]
    web.status.CopyFrom(calculate_status(web, [], ReplicaFailure("FailedDelete", "not that one"), NOW + 50))
    failure = web.status.conditions[1]
    assert (failure.reason, failure.message) == ("FailedDelete", "not that one")
    assert failure.lastTransitionTime.seconds == NOW
    assert [condition.type for condition in calculate_status(web, [], None, NOW).conditions] == ["Mine"]


def test_repeated_failure_does_not_change_the_status() -> None:
    """A changed status would trigger a sync at once. Each rejection names another pod, so that back-off would have no
    effect.
    """
    web = make_replica_set("web", replicas=3)
    web.status.CopyFrom(calculate_status(web, [], ReplicaFailure("FailedCreate", 'pods "web-bcdfg" is forbidden'), NOW))
    again = calculate_status(web, [], ReplicaFailure("FailedCreate", 'pods "web-xz245" is forbidden'), NOW + 50)
    assert again == web.status


def test_facts_belong_to_the_given_version_of_a_pod() -> None:
    book, before = PodPropertiesCache(), pod_of(WEB, "a").build()
    after = running(pod_of(WEB, "a")).build()
    assert [item.ready for item in book.properties_of([before, after, before])] == [False, True, False]
    book.apply_deltas([Delta(DELETED, after, after)])
    [again] = book.properties_of([after])
    assert again == compute_pod_properties(after)
