"""`pinnace trace`: the steps of a pod, from its versions and events."""

from pinnace.api.core_v1_pb2 import ContainerState, ContainerStatus, Event, Pod, PodCondition
from pinnace.cli.verbs.trace import build_trace, format_trace
from tests.builders import make_pod

BORN = 1_000_000


def created() -> Pod:
    pod = make_pod("a").req(cpu="1").new()
    pod.metadata.namespace, pod.metadata.uid = "default", "u"
    pod.metadata.creationTimestamp.seconds = BORN
    return pod


def bound(pod: Pod, fence: str = "scheduler/23") -> Pod:
    new = Pod()
    new.CopyFrom(pod)
    new.spec.nodeName = "node-1"
    if fence:
        new.metadata.annotations["pinnace.io/fence"] = fence
    condition = PodCondition(type="PodScheduled", status="True")
    condition.lastTransitionTime.seconds = BORN + 7
    new.status.conditions.append(condition)
    return new


def running(pod: Pod) -> Pod:
    new = Pod()
    new.CopyFrom(pod)
    new.status.phase = "Running"
    state = ContainerState()
    state.running.startedAt.seconds = BORN + 9
    new.status.containerStatuses.append(ContainerStatus(name="main", state=state))
    return new


def rejection() -> Event:
    event = Event(reason="FailedScheduling", message="0/1 nodes are available.", count=2, reportingInstance="scheduler-0")
    event.eventTime.seconds, event.eventTime.nanos = BORN + 1, 500_000_000
    event.metadata.resourceVersion = "12"
    return event


def test_steps_have_revisions_times_and_the_fence() -> None:
    first, then = created(), bound(created())
    last = running(then)
    result = build_trace(last, [(10, first), (20, then), (21, last)], True, [rejection()], {23: "scheduler-0"})
    assert [(step.what, step.by, step.seconds, step.revision) for step in result.steps] == [
        ("created", "", 0.0, 10),
        ("rejected", "scheduler-0", 1.5, 12),
        ("bound", "scheduler-0", 7.0, 20),
        ("Running", "kubelet of node-1", 9.0, 21),
    ]
    assert result.steps[1].detail == "0/1 nodes are available. (2 times)"
    assert result.steps[2].detail == "to node-1, under the fence scheduler/23"
    assert result.steps[3].detail == "main running"


def test_compacted_versions_are_reported_as_unknown() -> None:
    last = running(bound(created()))
    result = build_trace(last, [(21, last)], False, [], {})
    assert [(step.what, step.revision) for step in result.steps] == [("created", 0), ("bound", 0), ("Running", 21)]
    assert "etcd has compacted the earlier versions of the pod" in result.unknown[0]
    shown = "\n".join(format_trace(result))
    assert "Not known:\n  etcd has compacted" in shown and "+7s    <none>     bound" in shown


def test_pod_created_with_a_node_has_no_fence() -> None:
    direct = bound(created(), fence="")
    result = build_trace(direct, [(10, direct)], True, [], {})
    assert [step.what for step in result.steps] == ["created", "bound"]
    assert "without a fence" in result.steps[1].detail and not result.unknown
