"""The shape of virtual machines: resources, zones, and the labels and taints that nodes are registered with.

`pinnace up`, `pinnace node add` and the flags of a kubelet use one description. A file defines different shapes:

    - count: 2                     # node 0 and node 1
      cpu: 64
      memory: 256Gi
      resources: {example.com/gpu: 8}
      labels: {disk: ssd}
      taints: ["dedicated=gpu:NoSchedule"]
    - cpu: 8                       # all other nodes

Each shape applies to the next `count` nodes. The last shape can omit `count`: it then applies to all remaining nodes. If it has
a `count`, the list is repeated. Keys that a shape omits default to the option of the same name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Taint
from pinnace.api.documents import DocumentError, line_of
from pinnace.api.documents import parse as documents
from pinnace.api.pods import EFFECTS
from pinnace.api.quantity import QuantityError, amount, format_amount, parse
from pinnace.api.wellknown import (
    ARCH_LABEL,
    FLEET_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    OLD_REGION_LABEL,
    OLD_ZONE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)

CPU, MEMORY, PODS, STORAGE = "4", "32Gi", "110", "100Gi"
NATIVE = ("cpu", "memory", "pods", "ephemeral-storage")
"""The resources that every kubelet reports."""
ZONES = ("zone-a", "zone-b", "zone-c")
REGION = "region-1"
_PLAIN_KEYS = (HOSTNAME_LABEL, OS_LABEL, ARCH_LABEL, INSTANCE_TYPE_LABEL)
_ZONED_KEYS = (*_PLAIN_KEYS, ZONE_LABEL, REGION_LABEL)
MOST_ZONES = 26
OS, ARCH = "linux", "amd64"
_KEYS = (*NATIVE, "count", "zones", "region", "resources", "labels", "taints")
_MOST_COUNT = 1_000_000
_DOMAINS = ("kubernetes.io", "k8s.io")
"""Kubelets are not allowed to set labels of these domains and their subdomains, except for the labels and domains below."""
_OWN_LABELS = frozenset({
    HOSTNAME_LABEL, OS_LABEL, ARCH_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, REGION_LABEL, OLD_ZONE_LABEL, OLD_REGION_LABEL,
    "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
})  # fmt: skip
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"


class ShapeError(ValueError):
    """An invalid machine shape. `option`: the flag, or the file and line, that contains it."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class MachineShape:
    """The shape of one machine. `resources`: quantities by resource name. `zones`: nodes are assigned to zones by the number in
    their name; without zones, nodes have no zone and no region. `labels` and `taints` are applied once, at registration."""

    resources: Mapping[str, str] = field(default_factory=lambda: dict(zip(NATIVE, (CPU, MEMORY, PODS, STORAGE), strict=True)))
    zones: Sequence[str] = ZONES
    region: str = REGION
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()

    @property
    def label_keys(self) -> Sequence[str]:
        """The keys of `default_labels`."""
        return _ZONED_KEYS if self.zones else _PLAIN_KEYS

    def default_labels(self, name: str, resources: Mapping[str, str]) -> dict[str, str]:
        """Return the default labels of a node with this name and these `resources`."""
        result = {HOSTNAME_LABEL: name, OS_LABEL: OS, ARCH_LABEL: ARCH, INSTANCE_TYPE_LABEL: instance_type(resources)}
        if self.zones:
            result |= {ZONE_LABEL: self.zones[_number_in_name(name) % len(self.zones)], REGION_LABEL: self.region}
        return result


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of a set of nodes. `runs`: each shape with its number of consecutive nodes; None means all remaining nodes."""

    runs: Sequence[tuple[MachineShape, int | None]]

    @property
    def count(self) -> int | None:
        """The number of nodes that the file describes, or None if it is not limited."""
        counts = [count for _, count in self.runs]
        return None if None in counts else sum(count for count in counts if count)

    def check_registering(self) -> None:
        """Raise ShapeError if kubelets are not allowed to register nodes with these labels."""
        for shape, _ in self.runs:
            if refused := sorted(filter(is_restricted, shape.labels)):
                raise ShapeError("--labels", f"kubelets are not allowed to set {', '.join(refused)}; use `kubectl label nodes`")

    def shape_of_node(self, index: int) -> MachineShape:
        """Return the shape of the node with this index."""
        left = index % self.count if self.count else index
        for shape, count in self.runs:
            if count is None or left < count:
                return shape
            left -= count
        raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The command-line options that describe machines, as text; "" means not set. `machines`: the path of a file."""

    cpu: str = ""
    memory: str = ""
    pods: str = ""
    ephemeral_storage: str = ""
    zones: str = ""
    region: str = ""
    labels: str = ""
    taints: str = ""
    machines: str = ""

    def arguments(self) -> list[str]:
        """Return the equivalent flags of a kubelet."""
        given = ((f"--{name.replace('_', '-')}", getattr(self, name)) for name in self.__dataclass_fields__)
        return [word for flag, text in given if text for word in (flag, text)]

    def shape(self) -> MachineShape:
        """Parse the options. Raises ShapeError."""
        shape = MachineShape()
        given = {"cpu": self.cpu, "memory": self.memory, "pods": self.pods, "ephemeral-storage": self.ephemeral_storage}
        resources = {
            **shape.resources,
            **{name: _parse_quantity(name, text, f"--{name}") for name, text in given.items() if text},
        }
        return replace(
            shape,
            resources=resources,
            zones=_parse_zones(self.zones, "--zones") if self.zones else shape.zones,
            region=_check_label_value(self.region, "--region") if self.region else shape.region,
            labels=_parse_labels(_split_words(self.labels), "--labels"),
            taints=tuple(_parse_taint(word, "--taints") for word in _split_words(self.taints)),
        )

    def shapes(self, text: str = "") -> Shapes:
        """Parse the options and the file. `text`: the content of the file. Raises ShapeError."""
        shape = self.shape()
        return _parse_shapes(text, self.machines, shape) if self.machines else Shapes([(shape, None)])


def instance_type(resources: Mapping[str, str]) -> str:
    """Return the instance type, for example "virtual-4cpu-32Gi"."""
    cpu, memory = (format_amount(name, amount(name, resources.get(name, "0"))) for name in ("cpu", "memory"))
    return f"virtual-{cpu}cpu-{memory}"


def is_restricted(label: str) -> bool:
    """Return whether kubelets are not allowed to set or change this label of their nodes.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
    """
    domain = label.rpartition("/")[0]
    if label == FLEET_LABEL or _is_subdomain(domain, (_RESTRICTED,)):
        return True
    return _is_subdomain(domain, _DOMAINS) and label not in _OWN_LABELS and not _is_subdomain(domain, _OWN_DOMAINS)


def _is_subdomain(domain: str, domains: Iterable[str]) -> bool:
    return any(domain == item or domain.endswith(f".{item}") for item in domains)


def _number_in_name(name: str) -> int:
    """Return the number at the end of the name. Names without a number are mapped to a checksum."""
    digits = name[len(name.rstrip("0123456789")) :][-9:]
    return int(digits) if digits else crc32(name.encode())


def _parse_shapes(text: str, source: str, usual: MachineShape) -> Shapes:
    runs: list[tuple[MachineShape, int | None]] = []
    try:
        result = [document for document in documents(text) if document.data is not None]
    except DocumentError as error:
        raise ShapeError(f"{source}:{error.line}", str(error)) from None
    for document in result:
        for line, message in document.mistakes:
            raise ShapeError(f"{source}:{line}", message)
        if not isinstance(document.data, list):
            raise ShapeError(f"{source}:{document.line}", "expected a list of shapes")
        for index, data in enumerate(document.data):
            where = f"{source}:{line_of(document.data, (index,), document.line)}"
            if runs and runs[-1][1] is None:
                raise ShapeError(where, "the previous shape has no count: only the last shape can omit it")
            runs.append(_read_shape(data, where, usual))
    if not runs:
        raise ShapeError(source, "no shapes found")
    return Shapes(runs)


def _read_shape(data: Any, where: str, usual: MachineShape) -> tuple[MachineShape, int | None]:
    if not isinstance(data, dict):
        raise ShapeError(where, "expected a shape, for example {count: 2, cpu: 64}")
    for key in data:
        if key not in _KEYS:
            raise ShapeError(where, f'unknown field "{key}"; supported: {", ".join(_KEYS)}')
    given = {name: data[name] for name in NATIVE if name in data} | _read_mapping(data, "resources", where)
    zones = data.get("zones")
    texts = [str(zone) for zone in zones] if isinstance(zones, list) else [] if zones is None else [str(zones)]
    taints = data.get("taints", [])
    if not isinstance(taints, list):
        raise ShapeError(where, 'taints: expected a list, for example ["dedicated=gpu:NoSchedule"]')
    labels = {str(key): _show_scalar(value) for key, value in _read_mapping(data, "labels", where).items()}
    shape = MachineShape(
        {**usual.resources, **{name: _parse_quantity(name, str(value), where) for name, value in given.items()}},
        usual.zones if zones is None else _parse_zones(",".join(texts), where),
        _check_label_value(str(data["region"]), where) if "region" in data else usual.region,
        {**usual.labels, **_check_labels(labels, where)},
        tuple(_parse_taint(str(taint), where) for taint in taints) if "taints" in data else usual.taints,
    )
    count = data.get("count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= _MOST_COUNT):
        raise ShapeError(where, f"count: expected an integer from 1 to {_MOST_COUNT}")
    return shape, count


def _show_scalar(value: Any) -> str:
    """Return a scalar in YAML notation."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_mapping(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    result = data.get(key, {})
    if not isinstance(result, dict):
        raise ShapeError(where, f"{key}: expected a mapping, for example {{a: b}}")
    return dict(result)


def _split_words(text: str) -> Iterator[str]:
    return filter(None, (word.strip() for word in text.split(",")))


def _parse_quantity(resource: str, text: str, where: str) -> str:
    try:
        more = parse(text) > 0
        amount(resource, text)
    except QuantityError as error:
        raise ShapeError(where, str(error)) from None
    if not more:
        raise ShapeError(where, f'"{text}" must be greater than 0')
    if problems := names.label_key(resource):
        raise ShapeError(where, f'resource "{resource}": {problems[0]}')
    return text


def _parse_zones(text: str, where: str) -> tuple[str, ...]:
    """Parse a number of zones, or a list of zone names."""
    if text.isdecimal():
        if int(text) > MOST_ZONES:
            raise ShapeError(where, f"{text} zones are not supported: specify at most {MOST_ZONES}, or a list of names")
        return tuple(f"zone-{chr(ord('a') + number)}" for number in range(int(text)))
    return tuple(_check_label_value(word, where) for word in _split_words(text))


def _check_label_value(text: str, where: str) -> str:
    if problems := names.label_value(text):
        raise ShapeError(where, f'"{text}": {problems[0]}')
    return text


def _parse_labels(words: Iterator[str], where: str) -> dict[str, str]:
    result = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ShapeError(where, f'"{word}" is not a label; expected KEY=VALUE')
        result[key] = value
    return _check_labels(result, where)


def _check_labels(labels: dict[str, str], where: str) -> dict[str, str]:
    for key, value in labels.items():
        if problems := names.label_key(key):
            raise ShapeError(where, f'label "{key}": {problems[0]}')
        _check_label_value(value, where)
    return labels


def _parse_taint(text: str, where: str) -> Taint:
    front, colon, effect = text.rpartition(":")
    key, _, value = front.partition("=")
    if not colon or effect not in EFFECTS:
        raise ShapeError(where, f'"{text}" is not a taint; expected KEY[=VALUE]:EFFECT; effects: {", ".join(EFFECTS)}')
    if problems := names.label_key(key):
        raise ShapeError(where, f'taint "{key}": {problems[0]}')
    return Taint(key=key, value=_check_label_value(value, where), effect=effect)
