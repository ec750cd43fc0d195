"""In-place resize: which resources of the containers of a pod may change while the pod runs.

A resize changes cpu and memory of containers and sidecars, and their resizePolicy. Other changes of the patch are dropped, as
in Kubernetes; a change of the pod-level resources is refused.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/; the messages are those of
ValidatePodResize of Kubernetes.
"""

from apiserver.registry.validation.violations import forbidden, invalid
from pinnace.api.core_v1_pb2 import Container, PodSpec, ResourceRequirements
from pinnace.api.pods import qos_class
from pinnace.api.status import Violation

_RESIZABLE = ("cpu", "memory")
_LISTS = ("containers", "initContainers")


def carry_over_resources(new: PodSpec, old: PodSpec) -> PodSpec:
    """The old spec with the resources and the resizePolicy of the new one. Containers keep the names of the new spec, so that
    `validate_resize` can refuse another order."""
    resized = PodSpec()
    resized.CopyFrom(old)
    for field in _LISTS:
        wanted, kept = getattr(new, field), getattr(resized, field)
        if len(wanted) != len(kept):
            del kept[:]
            kept.extend(wanted)
            continue
        for container, source in zip(kept, wanted, strict=True):
            container.name = source.name
            _take(container, source)
    if new.resources != old.resources:
        resized.resources.CopyFrom(new.resources)
    return resized


def _take(container: Container, source: Container) -> None:
    container.ClearField("resources")
    if source.HasField("resources"):
        container.resources.CopyFrom(source.resources)
    del container.resizePolicy[:]
    container.resizePolicy.extend(source.resizePolicy)


def validate_resize(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    """The change alone; not the spec as it would be."""
    if new.resources != old.resources:
        out.append(forbidden("spec.resources", "pod-level resources cannot be resized"))
    if (quality := qos_class(new)) != qos_class(old):
        out.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))
    for field in _LISTS:
        containers, before = getattr(new, field), getattr(old, field)
        if len(containers) != len(before):
            out.append(forbidden(f"spec.{field}", "containers may not be added or removed on resize"))
            continue
        for index, (container, was) in enumerate(zip(containers, before, strict=True)):
            path = f"spec.{field}[{index}]"
            if container.name != was.name:
                out.append(forbidden(f"{path}.name", "containers may not be renamed or reordered on resize"))
            elif field == "initContainers" and was.restartPolicy != "Always":
                if container.resources != was.resources or container.resizePolicy != was.resizePolicy:
                    detail = "resources for non-sidecar init containers are immutable"
                    out.append(forbidden(f"{path}.resources", detail))
            else:
                _validate_step(container.resources, was.resources, f"{path}.resources", out)


def _validate_step(new: ResourceRequirements, old: ResourceRequirements, path: str, out: list[Violation]) -> None:
    removed = False
    for field, said in (("requests", "resource requests"), ("limits", "resource limits")):
        now, then = getattr(new, field), getattr(old, field)
        if any(name in then and name not in now for name in _RESIZABLE):
            out.append(forbidden(f"{path}.{field}", f"{said} cannot be removed"))
            removed = True
    if not removed and _others(new) != _others(old):
        out.append(forbidden("spec", f"only cpu and memory resources are mutable; changed: {path}"))


def _others(resources: ResourceRequirements) -> ResourceRequirements:
    """What a resize may not change."""
    rest = ResourceRequirements()
    rest.CopyFrom(resources)
    for name in _RESIZABLE:
        rest.requests.pop(name, None)
        rest.limits.pop(name, None)
    return rest
