"""The options and the file of machine shapes."""

from collections.abc import Mapping

import pytest

from pinnace.api.machines import MachineOptions, MachineShape, ShapeError, Shapes, instance_type, is_restricted

FILE = """
- count: 2
  cpu: 64
  memory: 256Gi
  resources: {example.com/gpu: 8}
  zones: [east]
  labels: {disk: ssd, fast: true}
  taints: ["dedicated=gpu:NoSchedule"]
- count: 1
- pods: 20
"""


def shapes(text: str, **options: str) -> Shapes:
    return MachineOptions(machines="shapes.yaml", **options).shapes(text)


def labels(shape: MachineShape, name: str) -> Mapping[str, str]:
    return shape.default_labels(name, shape.resources)


def test_default_machine_has_the_standard_labels() -> None:
    shape = MachineOptions().shape()
    assert shape.resources == {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    assert labels(shape, "node-4") == {
        "kubernetes.io/hostname": "node-4",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "virtual-4cpu-32Gi",
        "topology.kubernetes.io/zone": "zone-b",
        "topology.kubernetes.io/region": "region-1",
    }


@pytest.mark.parametrize(
    ("zones", "expected"),
    [("2", ["zone-a", "zone-b", "zone-a"]), ("x,y,z", ["x", "y", "z"]), ("alone", ["alone"] * 3)],
)
def test_nodes_are_assigned_to_zones_by_number(zones: str, expected: list[str]) -> None:
    shape = MachineOptions(zones=zones).shape()
    assert [labels(shape, f"node-{number}")["topology.kubernetes.io/zone"] for number in range(3)] == expected


def test_machine_without_zones_has_no_region() -> None:
    assert not any(key.startswith("topology") for key in labels(MachineOptions(zones="0").shape(), "node-0"))


def test_name_without_a_number_has_a_zone() -> None:
    assert labels(MachineShape(), "gateway")["topology.kubernetes.io/zone"] in MachineShape().zones


def test_instance_type_is_canonical() -> None:
    assert instance_type({"cpu": "500m", "memory": "1e9"}) == "virtual-500mcpu-1G"
    assert instance_type({}) == "virtual-0cpu-0"


def test_file_defines_several_shapes() -> None:
    result = shapes(FILE, memory="8Gi", labels="team=a")
    large, usual, small = (result.shape_of_node(number) for number in (1, 2, 99))
    assert large.resources == {
        "cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi", "example.com/gpu": "8",
    }  # fmt: skip
    assert large.labels == {"team": "a", "disk": "ssd", "fast": "true"}
    assert [(taint.key, taint.value, taint.effect) for taint in large.taints] == [("dedicated", "gpu", "NoSchedule")]
    assert large.zones == ("east",)
    assert usual.resources["memory"] == "8Gi" and usual.labels == {"team": "a"}
    assert small.resources["pods"] == "20"
    assert result.count is None


def test_counted_shapes_repeat() -> None:
    result = shapes("[{count: 2, cpu: 1}, {count: 1, cpu: 2}]")
    assert result.count == 3
    assert [result.shape_of_node(number).resources["cpu"] for number in range(6)] == ["1", "1", "2", "1", "1", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no shapes found"),
        ("cpu: 4", "expected a list of shapes"),
        ("- 4", "expected a shape"),
        ("- {cpus: 4}", 'unknown field "cpus"'),
        ("- {cpu: four}", '"four" is not a quantity'),
        ("- {cpu: 0}", "must be greater than 0"),
        ("- {count: 0}", "count: expected an integer from 1"),
        ("- {cpu: 1}\n- {cpu: 2}", "only the last shape can omit it"),
        ("- {labels: [a]}", "labels: expected a mapping"),
        ("- {labels: {a b: c}}", 'label "a b"'),
        ("- {taints: a}", "taints: expected a list"),
        ('- {taints: ["a:Never"]}', '"a:Never" is not a taint'),
        ("- {resources: {a b: 1}}", 'resource "a b"'),
        ("- [", "invalid YAML"),
    ],
)
def test_file_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as raised:
        shapes(text)
    assert raised.value.option.startswith("shapes.yaml")


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"cpu": "-1"}, "--cpu"),
        ({"ephemeral_storage": "1GiB"}, "--ephemeral-storage"),
        ({"zones": "99"}, "--zones"),
        ({"zones": "a b"}, "--zones"),
        ({"region": "/"}, "--region"),
        ({"labels": "disk"}, "--labels"),
        ({"taints": "dedicated"}, "--taints"),
    ],
)
def test_option_errors_name_the_option(options: Mapping[str, str], option: str) -> None:
    with pytest.raises(ShapeError) as raised:
        MachineOptions(**options).shape()
    assert raised.value.option == option


def test_kubelet_cannot_register_with_restricted_labels() -> None:
    MachineOptions(labels="disk=ssd,node.kubernetes.io/speed=1").shapes().check_registering()
    with pytest.raises(ShapeError, match="node-restriction"):
        MachineOptions(labels="node-restriction.kubernetes.io/a=b").shapes().check_registering()
    assert is_restricted("pinnace.io/fleet") and not is_restricted("kubernetes.io/os")


def test_options_are_converted_to_flags_of_a_kubelet() -> None:
    options = MachineOptions(cpu="8", ephemeral_storage="1Ti", machines="/shapes.yaml")
    assert options.arguments() == ["--cpu", "8", "--ephemeral-storage", "1Ti", "--machines", "/shapes.yaml"]
    assert MachineOptions().arguments() == []
