"""Which container is meant, and what there is to see of it."""

import pytest

from pinnace.api.core_v1_pb2 import ContainerStatus, Pod
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.kubelets import check_executable, check_logs_readable, choose_container


def pod(**states: str) -> Pod:
    """With containers a and b. `state` and `last` are fields of a ContainerState, of a's."""
    made = Pod()
    made.metadata.name, made.metadata.namespace = "web", "default"
    for name in "ab":
        made.spec.containers.add(name=name)
    if states:
        status = ContainerStatus(name="a")
        getattr(status.state, states["state"]).SetInParent()
        if "last" in states:
            getattr(status.lastState, states["last"]).SetInParent()
        made.status.containerStatuses.append(status)
    return made


def test_default_is_annotated_or_the_first() -> None:
    annotated = pod()
    annotated.metadata.annotations[DEFAULT_CONTAINER_ANNOTATION] = "b"
    assert (choose_container(pod(), ""), choose_container(annotated, ""), choose_container(annotated, "a")) == ("a", "b", "a")


def test_unknown_container_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match='container "c" not found in pod "web": containers: a, b'):
        choose_container(pod(), "c")


@pytest.mark.parametrize(
    ("states", "previous", "earlier"),
    [
        ({"state": "running"}, False, False),
        ({"state": "terminated"}, False, False),
        ({"state": "waiting", "last": "terminated"}, False, False),
        ({"state": "running", "last": "terminated"}, True, True),
        ({"state": "terminated", "last": "terminated"}, True, True),
        ({"state": "waiting", "last": "terminated"}, True, False),
    ],
)
def test_which_attempt_is_shown(states: dict[str, str], previous: bool, earlier: bool) -> None:
    assert check_logs_readable(pod(**states), "a", previous) is earlier


@pytest.mark.parametrize(
    ("states", "previous", "message"),
    [
        ({}, False, 'container "a" in pod "web" is waiting to start: ContainerCreating'),
        ({"state": "waiting"}, False, 'container "a" in pod "web" is waiting to start: ContainerCreating'),
        ({"state": "running"}, True, 'previous terminated container "a" in pod "web" not found'),
    ],
)
def test_where_there_is_nothing_to_show(states: dict[str, str], previous: bool, message: str) -> None:
    with pytest.raises(Rejected, match=message) as refused:
        check_logs_readable(pod(**states), "a", previous)
    assert "`kubectl describe pod web -n default`" in dict(refused.value.refusal.metadata)["hint"]


@pytest.mark.parametrize(("reason", "why"), [("OutOfcpu", r" \(OutOfcpu\)$"), ("", "$")])
def test_pod_that_was_refused_does_not_wait_to_start(reason: str, why: str) -> None:
    refused = pod()
    refused.status.phase, refused.status.reason = "Failed", reason
    with pytest.raises(Rejected, match=f'container "a" in pod "web" has never run: the pod is Failed{why}'):
        check_logs_readable(refused, "a", False)


def test_commands_run_in_what_runs() -> None:
    check_executable(pod(state="running"), "a")
    with pytest.raises(Rejected, match='container "a" in pod "web" is not running'):
        check_executable(pod(state="waiting"), "a")
    over = pod(state="terminated")
    over.status.phase = "Failed"
    with pytest.raises(Rejected, match="cannot exec into a container in a completed pod; current phase is Failed"):
        check_executable(over, "a")
