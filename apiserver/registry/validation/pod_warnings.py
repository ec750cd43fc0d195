"""What is allowed in a pod, and does not do what it seems to.

Source: pkg/api/pod/warnings.go and the strategies of Kubernetes 1.36, as far as it matters here; of ConfigMaps and Secrets it
says that there are none.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from apiserver.registry.validation.storage import STORAGE
from pinnace.api.core_v1_pb2 import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    NodeAffinity,
    PodSpec,
    Volume,
    VolumeProjection,
    VolumeSource,
)
from pinnace.api.names import dns_label
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.wellknown import OLD_REGION_LABEL, OLD_ZONE_LABEL, REGION_LABEL, ZONE_LABEL

_DEPRECATED = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    OLD_ZONE_LABEL: ZONE_LABEL,
    OLD_REGION_LABEL: REGION_LABEL,
}
_BYTES = ("memory", "ephemeral-storage", STORAGE)
_ABSENT = {"configMap": "ConfigMaps", "secret": "Secrets"}


def spec_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    """`path`: of the spec in its object."""
    for index, container in enumerate(spec.initContainers):
        yield from _of_container(container, f"{path}.initContainers[{index}]")
    for index, container in enumerate(spec.containers):
        yield from _of_container(container, f"{path}.containers[{index}]")
    for index, volume in enumerate(spec.volumes):
        yield from _of_volume(volume, f"{path}.volumes[{index}]")
    for key in spec.nodeSelector:
        yield from _of_label(key, f"{path}.nodeSelector[{key}]")
    for index, constraint in enumerate(spec.topologySpreadConstraints):
        where = f"{path}.topologySpreadConstraints[{index}]"
        yield from _of_label(constraint.topologyKey, f"{where}.topologyKey")
        if not constraint.HasField("labelSelector"):
            yield f"{where}: a constraint without a labelSelector counts no pods, so it spreads nothing"
    yield from amount_warnings(spec.overhead, f"{path}.overhead")
    if spec.affinity.HasField("nodeAffinity"):
        yield from _of_affinity(spec.affinity.nodeAffinity, f"{path}.affinity.nodeAffinity")


def name_warnings(name: str, use: str) -> Iterator[str]:
    """Of a name that is sound, and no label: `use` is what else is made of it."""
    if problems := dns_label(name):
        recommended = f"a DNS label is recommended: [{' '.join(problems)}]"
        yield f"metadata.name: this is used in {use}, which can result in surprising behavior; {recommended}"


def amount_warnings(quantities: Mapping[str, Quantity], path: str) -> Iterator[str]:
    """Of what pods and claims ask for."""
    for resource in _BYTES:
        if resource in quantities and (told := quantities[resource].string).endswith("m"):
            yield f'{path}[{resource}]: "{told}" is in thousandths of a byte; did you mean "{told[:-1]}M"?'


def _of_container(container: Container, path: str) -> Iterator[str]:
    seen = set()
    for index, variable in enumerate(container.env):
        if variable.name in seen and not _extends(variable):
            yield f'{path}.env[{index}]: hides the previous definition of "{variable.name}"'
        seen.add(variable.name)
        if variable.HasField("valueFrom"):
            yield from _of_source(variable.valueFrom, f"{path}.env[{index}].valueFrom")
    for index, source in enumerate(container.envFrom):
        yield from _of_source(source, f"{path}.envFrom[{index}]")
    if container.HasField("resources"):
        yield from amount_warnings(container.resources.limits, f"{path}.resources.limits")
        yield from amount_warnings(container.resources.requests, f"{path}.resources.requests")


def _extends(variable: EnvVar) -> bool:
    """Is it made of what it was before, and more? As in PATH=$(PATH):/bin."""
    before = f"$({variable.name})"
    return before in variable.value and variable.value != before


def _of_source(source: EnvVarSource | EnvFromSource, path: str) -> Iterator[str]:
    for field, reference in source.ListFields():
        kind = field.name.removesuffix("KeyRef").removesuffix("Ref")
        if kind in _ABSENT and not reference.optional:
            yield _absent(f"{path}.{field.name}", kind)


def _of_volume(volume: Volume, path: str) -> Iterator[str]:
    source = volume.volumeSource
    yield from _of_parts(source, path)
    if source.HasField("ephemeral"):
        requests = source.ephemeral.volumeClaimTemplate.spec.resources.requests
        yield from amount_warnings(requests, f"{path}.ephemeral.volumeClaimTemplate.spec.resources.requests")
    if source.HasField("projected"):
        for index, projection in enumerate(source.projected.sources):
            yield from _of_parts(projection, f"{path}.projected.sources[{index}]")


def _of_parts(source: VolumeSource | VolumeProjection, path: str) -> Iterator[str]:
    for field, part in source.ListFields():
        if field.name in _ABSENT and not part.optional:
            yield _absent(f"{path}.{field.name}", field.name)


def _absent(path: str, kind: str) -> str:
    return (
        f"{path}: pinnace has no {_ABSENT[kind]}: with fake containers the pod runs all the same, with processes it is refused"
    )


def _of_affinity(affinity: NodeAffinity, path: str) -> Iterator[str]:
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
    preferred = affinity.preferredDuringSchedulingIgnoredDuringExecution
    terms = chain(
        ((f"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]", term) for i, term in enumerate(required)),
        (
            (f"preferredDuringSchedulingIgnoredDuringExecution[{i}].preference", each.preference)
            for i, each in enumerate(preferred)
        ),
    )
    for where, term in terms:
        for index, requirement in enumerate(term.matchExpressions):
            yield from _of_label(requirement.key, f"{path}.{where}.matchExpressions[{index}].key")


def _of_label(key: str, path: str) -> Iterator[str]:
    if key in _DEPRECATED:
        yield f'{path}: "{key}" is deprecated; use "{_DEPRECATED[key]}"'
