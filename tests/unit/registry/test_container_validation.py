"""Containers: names, images, ports, security."""

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.names import _NO_LABEL
from pinnace.api.resources import PODS
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import CONTAINER, Data, copy, created, pod, ready

C = "spec.containers[0]"
S = f"{C}.securityContext"
RANGE = "must be between 1 and 65535, inclusive"
NO_SIDECAR = "may not be set for init containers without restartPolicy=Always"
IDS = "must be between 0 and 2147483647, inclusive"


def named(name: str, **more: object) -> Data:
    return CONTAINER | {"name": name} | more


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, ["spec.containers: Required value"]),
        ({"containers": [named("a"), named("b")]}, []),
        ({"containers": [named("")]}, [f"{C}.name: Required value"]),
        ({"containers": [named("A")]}, [f'{C}.name: Invalid value: "A": {_NO_LABEL[0]}']),
        ({"containers": [named("a.b")]}, [f'{C}.name: Invalid value: "a.b": must not contain dots']),
        ({"containers": [named("a"), named("a")]}, ['spec.containers[1].name: Duplicate value: "a"']),
        ({"initContainers": [named("c")]}, ['spec.initContainers[0].name: Duplicate value: "c"']),
        (
            {"containers": [named("a", workingDir="/\0", command=["sh", "\0"], args=["\0"])]},
            [
                f'{C}.workingDir: Invalid value: "/\\u0000": must not contain null characters',
                f'{C}.command[1]: Invalid value: "\\u0000": must not contain null characters',
                f'{C}.args[0]: Invalid value: "\\u0000": must not contain null characters',
            ],
        ),
        ({"containers": [named("a", image="")]}, [f"{C}.image: Required value"]),
        (
            {"containers": [named("a", image=" a:1")]},
            [f'{C}.image: Invalid value: " a:1": must not have leading or trailing whitespace'],
        ),
        (
            {"containers": [named("a", imagePullPolicy="Sometimes")]},
            [f'{C}.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'],
        ),
        (
            {"containers": [named("a", terminationMessagePolicy="x")]},
            [f'{C}.terminationMessagePolicy: Unsupported value: "x": supported values: "File", "FallbackToLogsOnError"'],
        ),
        (
            {"containers": [named("a", restartPolicy="Always")]},
            [f"{C}.restartPolicy: Forbidden: may not be set for non-init containers"],
        ),
        ({"initContainers": [named("i", restartPolicy="Always")]}, []),
        (
            {"initContainers": [named("i", restartPolicy="Never")]},
            ['spec.initContainers[0].restartPolicy: Unsupported value: "Never": supported values: "Always"'],
        ),
        ({"initContainers": [named("i", restartPolicy="Always", startupProbe={"exec": {"command": ["a"]}})]}, []),
        (
            {"initContainers": [named("i", lifecycle={}, startupProbe={"exec": {"command": ["a"]}})]},
            [
                f"spec.initContainers[0].lifecycle: Forbidden: {NO_SIDECAR}",
                f"spec.initContainers[0].startupProbe: Forbidden: {NO_SIDECAR}",
            ],
        ),
        (
            {"ephemeralContainers": [{"name": "debug", "image": "a:1"}]},
            ["spec.ephemeralContainers: Forbidden: cannot be set on create"],
        ),
    ],
)
def test_containers(spec: Data, expected: list[str]) -> None:
    assert created(PODS, pod(**spec)) == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 80, "name": "http"}, {"containerPort": 80, "protocol": "UDP"}], []),
        ([{}], [f"{C}.ports[0].containerPort: Required value"]),
        ([{"containerPort": 65536}], [f"{C}.ports[0].containerPort: Invalid value: 65536: {RANGE}"]),
        ([{"containerPort": -1}], [f"{C}.ports[0].containerPort: Invalid value: -1: {RANGE}"]),
        ([{"containerPort": 1, "hostPort": 70000}], [f"{C}.ports[0].hostPort: Invalid value: 70000: {RANGE}"]),
        (
            [{"containerPort": 1, "protocol": "tcp"}],
            [f'{C}.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            [{"containerPort": 1, "name": "80"}],
            [f'{C}.ports[0].name: Invalid value: "80": must contain at least one letter (a-z)'],
        ),
        (
            [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}],
            [f'{C}.ports[1].name: Duplicate value: "a"'],
        ),
        (
            [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}],
            [f'{C}.ports[1].hostPort: Duplicate value: "TCP//80"'],
        ),
        (
            [
                {"containerPort": 1, "hostPort": 80},
                {"containerPort": 2, "hostPort": 80, "protocol": "UDP"},
                {"containerPort": 3, "hostPort": 80, "hostIP": "10.0.0.1"},
            ],
            [],
        ),
    ],
)
def test_ports(ports: list[Data], expected: list[str]) -> None:
    assert created(PODS, pod({"ports": ports})) == expected


def test_host_ports_are_unique_in_the_pod() -> None:
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    sidecar = named("i", **port)
    assert created(PODS, pod(containers=[named("a", **port), named("b", **port)])) == [
        'spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"'
    ]
    assert created(PODS, pod(port, initContainers=[sidecar])) == [], "init containers run before the others"


def test_on_the_hosts_network_ports_are_the_hosts() -> None:
    assert created(PODS, pod({"ports": [{"containerPort": 80, "hostPort": 81}]}, hostNetwork=True)) == [
        f"{C}.ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
    ]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"runAsUser": 0, "privileged": True, "procMount": "Default"}, []),
        ({"runAsUser": -1}, [f"{S}.runAsUser: Invalid value: -1: {IDS}"]),
        ({"runAsGroup": 2**31}, [f"{S}.runAsGroup: Invalid value: 2147483648: {IDS}"]),
        (
            {"procMount": "x"},
            [f'{S}.procMount: Unsupported value: "x": supported values: "Default", "Unmasked"'],
        ),
        (
            {"privileged": True, "allowPrivilegeEscalation": False},
            [
                f'{S}: Invalid value: "": cannot set `allowPrivilegeEscalation` to false and `privileged` to true',
            ],
        ),
        (
            {"seccompProfile": {"type": "x"}, "appArmorProfile": {"type": "RuntimeDefault"}},
            [
                f'{S}.seccompProfile.type: Unsupported value: "x": supported values: "Localhost", "RuntimeDefault", '
                '"Unconfined"',
            ],
        ),
        (
            {"seccompProfile": {"type": "Localhost"}},
            [
                f"{S}.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ],
        ),
        (
            {"seccompProfile": {}, "appArmorProfile": {"type": "Unconfined", "localhostProfile": "p"}},
            [
                f"{S}.seccompProfile.type: Required value: type is required when seccompProfile is set",
                f'{S}.appArmorProfile.localhostProfile: Invalid value: "p": can only be set when AppArmor type is Localhost',
            ],
        ),
    ],
)
def test_security(context: Data, expected: list[str]) -> None:
    assert created(PODS, pod({"securityContext": context})) == expected


def test_resize_policies() -> None:
    policies = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "cpu", "restartPolicy": "x"}, {}]
    assert created(PODS, pod({"resizePolicy": policies})) == [
        f'{C}.resizePolicy[1]: Duplicate value: "cpu"',
        f'{C}.resizePolicy[1].restartPolicy: Unsupported value: "x": supported values: "NotRequired", "RestartContainer"',
        f'{C}.resizePolicy[2].resourceName: Unsupported value: "": supported values: "cpu", "memory"',
        f'{C}.resizePolicy[2].restartPolicy: Unsupported value: "": supported values: "NotRequired", "RestartContainer"',
    ]


E = "spec.ephemeralContainers[0]"


@pytest.mark.parametrize(
    ("ephemeral", "expected"),
    [
        ({"name": "debug", "image": "busybox", "targetContainerName": "c"}, []),
        ({"name": "c", "image": "busybox"}, [f'{E}.name: Duplicate value: "c"']),
        ({"name": "d"}, [f"{E}.image: Required value"]),
        (
            {"name": "d", "image": "b", "targetContainerName": "none"},
            [f'{E}.targetContainerName: Not found: "none"'],
        ),
        (
            {"name": "d", "image": "b", "ports": [{"containerPort": 8, "protocol": "TCP"}], "livenessProbe": {}},
            [f"{E}.{field}: Forbidden: cannot be set for an Ephemeral Container" for field in ("ports", "livenessProbe")],
        ),
        (
            {"name": "d", "image": "b", "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}]},
            [f"{E}.volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container"],
        ),
    ],
)  # fmt: skip
def test_ephemeral_containers_are_validated(ephemeral: Data, expected: list[str]) -> None:
    old = ready(pod(volumes=[{"name": "v", "emptyDir": {}}]))
    new = copy(old)
    new.spec.MergeFrom(from_dict(PODS, {"spec": {"ephemeralContainers": [ephemeral]}}).spec)
    strategy = STRATEGIES["pods"]
    strategy.prepare_ephemeral_containers(new, old)
    assert [str(violation) for violation in strategy.validate_ephemeral_containers(new, old)] == expected


def test_ephemeral_container_cannot_be_changed() -> None:
    old = ready(pod())
    old.spec.ephemeralContainers.add().ephemeralContainerCommon.name = "d"
    new = copy(old)
    new.spec.ephemeralContainers[0].ephemeralContainerCommon.image = "other"
    strategy = STRATEGIES["pods"]
    strategy.prepare_ephemeral_containers(new, old)
    assert [str(violation) for violation in strategy.validate_ephemeral_containers(new, old)] == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "d" may not be changed'
    ]
