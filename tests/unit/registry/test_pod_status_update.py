"""What a status update may do: the phase moves along its graph, what has ended stays ended."""

from itertools import product
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod, PodStatus
from pinnace.api.names import _NO_SUBDOMAIN
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import CONTAINER, Data, copy, pod, ready, status_updated

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
LEGAL = {
    *(("Pending", phase) for phase in PHASES),
    *(("Running", phase) for phase in PHASES if phase != "Pending"),
    *(("Unknown", phase) for phase in PHASES),
    ("Succeeded", "Succeeded"),
    ("Failed", "Failed"),
}
C = "status.containerStatuses[0]"


def with_status(obj: Pod, **status: Any) -> Pod:
    result = copy(obj)
    result.status.MergeFrom(from_dict(PodStatus, status))
    return result


@pytest.mark.parametrize(("old", "new"), list(product(PHASES, PHASES)))
def test_phases(old: str, new: str) -> None:
    before = with_status(ready(pod()), phase=old)
    expected = [] if (old, new) in LEGAL else [f'status.phase: Invalid value: "{new}": may not change from "{old}"']
    assert status_updated(with_status(before, phase=new), before) == expected


def test_phase_that_is_none() -> None:
    old = ready(pod())
    assert status_updated(with_status(old, phase="Done"), old) == [
        'status.phase: Unsupported value: "Done": supported values: "Pending", "Running", "Succeeded", "Failed", "Unknown"'
    ]


def test_omitted_status_fields_stay() -> None:
    old = with_status(ready(pod()), phase="Running")
    new = copy(old)
    new.ClearField("status")
    new.status.reason = "Evicted"
    assert status_updated(new, old) == []
    assert (new.status.phase, new.status.qosClass) == ("Running", "BestEffort")


def test_only_the_status_changes() -> None:
    old = ready(pod())
    new = with_status(old, phase="Running")
    new.metadata.labels["new"] = "label"
    new.spec.nodeName = "elsewhere"
    assert status_updated(new, old) == []
    assert (new.metadata, new.spec) == (old.metadata, old.spec)
    assert new.status.phase == "Running"


RUNNING: Data = {"name": "c", "state": {"running": {}}, "restartCount": 1}
FAILED: Data = {"name": "c", "state": {"terminated": {"exitCode": 1}}, "restartCount": 1}
DONE: Data = {"name": "c", "state": {"terminated": {"exitCode": 0}}, "restartCount": 1}
ENDED = [f"{C}.state: Forbidden: may not be transitioned to non-terminated state"]


@pytest.mark.parametrize(
    ("restart", "old", "new", "expected"),
    [
        ("Never", RUNNING, FAILED, []),
        ("Never", FAILED, RUNNING, ENDED),
        ("Never", DONE, RUNNING, ENDED),
        ("OnFailure", FAILED, RUNNING, []),
        ("OnFailure", DONE, RUNNING, ENDED),
        ("Always", DONE, RUNNING, []),
        ("Always", RUNNING, RUNNING | {"restartCount": 2}, []),
        (
            "Always",
            RUNNING,
            RUNNING | {"restartCount": 0},
            [f"{C}.restartCount: Invalid value: 0: may not decrease (it is 1)"],
        ),
        ("Never", FAILED, {"name": "other"}, []),
    ],
)
def test_containers_that_have_ended(restart: str, old: Data, new: Data, expected: list[str]) -> None:
    bare = ready(pod(restartPolicy=restart))
    before = with_status(bare, containerStatuses=[old])
    assert status_updated(with_status(bare, containerStatuses=[new]), before) == expected


def test_init_containers_end_but_sidecars_go_on() -> None:
    init = [CONTAINER | {"name": "i"}, CONTAINER | {"name": "s", "restartPolicy": "Always"}]
    bare = ready(pod(restartPolicy="Never", initContainers=init))
    old = with_status(bare, initContainerStatuses=[DONE | {"name": "i"}, DONE | {"name": "s"}])
    new = with_status(bare, initContainerStatuses=[RUNNING | {"name": "i"}, RUNNING | {"name": "s"}])
    assert status_updated(new, old) == [
        "status.initContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [{"type": "Ready", "status": "True"}, {"type": "example.com/x", "status": "Unknown"}]}, []),
        (
            {"conditions": [{"type": "a b", "status": "yes"}]},
            [
                'status.conditions[0].type: Invalid value: "a b": name part must consist of alphanumeric characters',
                'status.conditions[0].status: Unsupported value: "yes": supported values: "True", "False", "Unknown"',
            ],
        ),
        ({"podIP": "10.0.0.1", "hostIP": "fd00::1", "podIPs": [{"ip": "10.0.0.1"}], "hostIPs": [{"ip": "fd00::1"}]}, []),
        ({"podIP": "x", "podIPs": [{"ip": "y"}]}, ['status.podIP: Invalid value: "x"', 'status.podIPs[0]: Invalid value: "y"']),
        ({"hostIP": "1.2.3.4.5", "hostIPs": [{"ip": ""}]}, ["status.hostIP: Invalid", 'status.hostIPs[0]: Invalid value: ""']),
        ({"qosClass": "Guaranteed"}, ['status.qosClass: Invalid value: "Guaranteed": field is immutable']),
        ({"nominatedNodeName": "node-0"}, []),
        ({"nominatedNodeName": "A"}, [f'status.nominatedNodeName: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
    ],
)
def test_rest_of_a_status(status: Data, expected: list[str]) -> None:
    old = ready(pod())
    result = status_updated(with_status(old, **status), old)
    assert len(result) == len(expected)
    assert all(violation.startswith(start) for violation, start in zip(result, expected, strict=True))


def test_kind_without_status_refuses_status_updates() -> None:
    obj = pod()
    for plural in ("leases", "events", "priorityclasses"):
        (violation,) = STRATEGIES[plural].validate_status_update(obj, obj)
        assert str(violation) == "status: Forbidden: this resource has no status to update"
