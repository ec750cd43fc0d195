"""The rest of a pod's spec: choices, names, the network; and that a sound pod stays sound."""

from pathlib import Path
from typing import Any

import pytest

from pinnace.api.manifest import load
from pinnace.api.names import _NO_LABEL, _NO_SEARCH, _NO_SUBDOMAIN
from pinnace.api.resources import PODS
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import created, pod

EXAMPLES = Path(__file__).parents[3] / "examples"
NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
INT32 = "must be between 1 and 2147483647, inclusive"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"restartPolicy": "Sometimes"},
            ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
        ),
        (
            {"dnsPolicy": "x"},
            [
                'spec.dnsPolicy: Unsupported value: "x": supported values: "ClusterFirstWithHostNet", "ClusterFirst", '
                '"Default", "None"'
            ],
        ),
        (
            {"preemptionPolicy": "x"},
            ['spec.preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never"'],
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            ["spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0"],
        ),
        ({"activeDeadlineSeconds": 1}, []),
        ({"activeDeadlineSeconds": 0}, [f"spec.activeDeadlineSeconds: Invalid value: 0: {INT32}"]),
        ({"activeDeadlineSeconds": 2**31}, [f"spec.activeDeadlineSeconds: Invalid value: 2147483648: {INT32}"]),
        ({"os": {"name": "linux"}}, []),
        ({"os": {"name": "plan9"}}, ['spec.os.name: Unsupported value: "plan9": supported values: "linux", "windows"']),
        (
            {"hostPID": True, "shareProcessNamespace": True},
            ["spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"],
        ),
        (
            {"hostUsers": False, "hostNetwork": True, "hostIPC": True},
            [
                "spec.hostNetwork: Forbidden: when `hostUsers` is false",
                "spec.hostIPC: Forbidden: when `hostUsers` is false",
            ],
        ),
        ({"nodeName": "node-0"}, []),
        ({"nodeName": "Node"}, [f'spec.nodeName: Invalid value: "Node": {_NO_SUBDOMAIN[0]}']),
        ({"priorityClassName": "A"}, [f'spec.priorityClassName: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
        ({"serviceAccountName": "A"}, [f'spec.serviceAccountName: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
        ({"runtimeClassName": "A"}, [f'spec.runtimeClassName: Invalid value: "A": {_NO_SUBDOMAIN[0]}']),
        ({"hostname": "a.b"}, ['spec.hostname: Invalid value: "a.b": must not contain dots']),
        ({"subdomain": "A"}, [f'spec.subdomain: Invalid value: "A": {_NO_LABEL[0]}']),
        ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.b"]}, {"ip": "::1"}]}, []),
        (
            {"hostAliases": [{"ip": "10.0.0", "hostnames": ["A"]}]},
            [
                f'spec.hostAliases[0].ip: Invalid value: "10.0.0": {NO_IP}',
                f'spec.hostAliases[0].hostnames[0]: Invalid value: "A": {_NO_SUBDOMAIN[0]}',
            ],
        ),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}}, []),
        (
            {"dnsPolicy": "None"},
            [
                "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
            ],
        ),
        (
            {"dnsConfig": {"nameservers": ["1.1.1.1", "x", "::1", "::2"], "options": [{}]}},
            [
                "spec.dnsConfig.nameservers: Invalid value: 4: must not have more than 3 nameservers",
                f'spec.dnsConfig.nameservers[1]: Invalid value: "x": {NO_IP}',
                "spec.dnsConfig.options[0]: Required value: must not be empty",
            ],
        ),
        (
            {"dnsConfig": {"searches": ["a" * 100] * 33}},
            [
                "spec.dnsConfig.searches: Invalid value: 33: must not have more than 32 search paths",
                "spec.dnsConfig.searches: Invalid value: 3332: must not have more than 2048 characters (including spaces) in "
                "the search list",
            ],
        ),
        ({"readinessGates": [{"conditionType": "example.com/x"}]}, []),
        (
            {"readinessGates": [{"conditionType": ""}]},
            ['spec.readinessGates[0].conditionType: Invalid value: "": name part must be non-empty'],
        ),
        ({"overhead": {"cpu": "100m"}}, []),
        ({"overhead": {"cpu": "-1"}}, ['spec.overhead[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
        (
            {"securityContext": {"fsGroup": -1, "supplementalGroups": [-1], "fsGroupChangePolicy": "", "sysctls": [{}]}},
            [
                "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "spec.securityContext.supplementalGroups[0]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                'spec.securityContext.fsGroupChangePolicy: Unsupported value: "": supported values: "Always", "OnRootMismatch"',
                "spec.securityContext.sysctls[0].name: Required value",
            ],
        ),
        (
            {"securityContext": {"sysctls": [{"name": name, "value": "1"} for name in ("net/a.b_c", "net/a.b_c", "A")]}},
            [
                'spec.securityContext.sysctls[1].name: Duplicate value: "net/a.b_c"',
                'spec.securityContext.sysctls[2].name: Invalid value: "A": must have at most 253 characters and match regex '
                r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ],
        ),
    ],
)
def test_spec(spec: dict[str, Any], expected: list[str]) -> None:
    assert created(PODS, pod(**spec)) == expected


def test_all_violations_are_reported_at_once() -> None:
    result = created(
        PODS,
        pod(
            {"name": "A", "image": "", "resources": {"requests": {"cpu": "-1"}}},
            {"name": "B"},
            restartPolicy="x",
            tolerations=[{"operator": "In", "key": "a"}],
            nodeSelector={"a": "b c"},
            volumes=[{"name": ""}],
        ),
    )
    assert sorted(violation.partition(": ")[0] for violation in result) == [
        "metadata.name",
        "spec.containers[0].image",
        "spec.containers[0].name",
        "spec.containers[0].resources.requests[cpu]",
        "spec.nodeSelector",
        "spec.restartPolicy",
        "spec.tolerations[0].operator",
        "spec.volumes[0].name",
    ]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_examples_are_sound(file: Path) -> None:
    for manifest in load(file.read_text(), file.name):
        if manifest.resource.namespaced:
            manifest.obj.metadata.namespace = "default"
        assert created(manifest.resource, manifest.obj) == []


def test_validation_changes_nothing() -> None:
    obj = pod({"resources": {"limits": {"cpu": "1"}}})
    STRATEGIES["pods"].prepare_create(obj)
    before = obj.SerializeToString(deterministic=True)
    STRATEGIES["pods"].validate(obj)
    assert obj.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("search", [".", "example.com.", "_tcp.example.com", "a_b.example.com"])
def test_searches_are_domains(search: str) -> None:
    assert created(PODS, pod(dnsConfig={"searches": [search]})) == []


@pytest.mark.parametrize("search", ["", "_", "Example.com", "example.com-", "example..com", "a b"])
def test_searches_are_nothing_else(search: str) -> None:
    assert created(PODS, pod(dnsConfig={"searches": [search]})) == [
        f'spec.dnsConfig.searches[0]: Invalid value: "{search}": {_NO_SEARCH[0]}'
    ]
