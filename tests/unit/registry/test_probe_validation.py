"""Probes and lifecycle hooks."""

import pytest

from pinnace.api import wire
from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

C = "spec.containers[0]"
RANGE = "must be between 1 and 65535, inclusive"


def probe(**more: object) -> Data:
    return {"readinessProbe": {"tcpSocket": {"port": 80}, **more}}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (probe(), []),
        (probe(periodSeconds=-1), [f"{C}.readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"]),
        ({"readinessProbe": {}}, [f"{C}.readinessProbe: Required value: must specify a handler type"]),
        (
            {"readinessProbe": {"exec": {"command": ["a", "\0"]}}},
            [f'{C}.readinessProbe.exec.command[1]: Invalid value: "\\u0000": must not contain null characters'],
        ),
        ({"readinessProbe": {"exec": {}}}, [f"{C}.readinessProbe.exec.command: Required value"]),
        ({"livenessProbe": {"grpc": {"port": 0}}}, [f"{C}.livenessProbe.grpc.port: Invalid value: 0: {RANGE}"]),
        (
            {"livenessProbe": {"httpGet": {"port": "web_1", "scheme": "http"}}},
            [
                f'{C}.livenessProbe.httpGet.port: Invalid value: "web_1": must contain only alpha-numeric characters (a-z, '
                "0-9), and hyphens (-)",
                f'{C}.livenessProbe.httpGet.scheme: Unsupported value: "http": supported values: "HTTP", "HTTPS"',
            ],
        ),
        ({"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "X-Token", "value": "a b"}]}}}, []),
        (
            {"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a: b\r\nc"}]}}},
            [
                f'{C}.livenessProbe.httpGet.httpHeaders: Invalid value: "a: b\\r\\nc": a valid HTTP header must consist of '
                "alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
            ],
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 80}, "exec": {"command": ["a"]}}},
            [f"{C}.livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2}},
            [f"{C}.livenessProbe.successThreshold: Invalid value: 2: must be 1"],
        ),
        (
            {"startupProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2, "terminationGracePeriodSeconds": 0}},
            [
                f"{C}.startupProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                f"{C}.startupProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            probe(terminationGracePeriodSeconds=1),
            [f"{C}.readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes"],
        ),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}, []),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
            [
                f"{C}.lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than "
                "terminationGracePeriodSeconds (30)"
            ],
        ),
        ({"lifecycle": {"postStart": {}}}, [f"{C}.lifecycle.postStart: Required value: must specify a handler type"]),
    ],
)
def test_probes_and_hooks(container: Data, expected: list[str]) -> None:
    assert created(PODS, pod(container)) == expected


def test_handler_that_is_not_modelled_is_not_missed() -> None:
    obj = pod({"livenessProbe": {}})
    obj.spec.containers[0].livenessProbe.handler.MergeFromString(wire.field(99, b""))
    assert created(PODS, obj) == []
