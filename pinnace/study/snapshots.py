"""Snapshots as traces: the nodes and pods of a cluster, with their labels, taints and affinities (pinnace.snapshot).

    Node                        its labels, taints, `unschedulable` and allocatable resources
    Pod                         its spec; it arrives when it was created, from the first creation on
    Pod of a DaemonSet          no task: it belongs to its node, whose allocatable resources are reduced by its requests
    duration of a task          of a finished pod: from its start to its end
                                otherwise the annotation `pinnace.io/run-seconds`, then stages; without both it does not end
    group of a task             the pod's controller

GPUs of a device plugin (GPU_RESOURCES) become whole devices of GpuShare, and the label of the product their model.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pinnace import fit
from pinnace.api.codec import decode_valid_part
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.quantity import amount, format_amount
from pinnace.api.scalars import to_seconds
from pinnace.kubelet.runtime.interface import UnsupportedPod
from pinnace.kubelet.runtime.stages import Behaviour, Stages, StagesError, annotated_behaviour, load_stages
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, INDEX_ANNOTATION, MODEL_LABEL, WHOLE
from pinnace.snapshot.api import Object
from pinnace.snapshot.documents import SnapshotError, read_objects
from pinnace.study.trace import Machine, Task, Trace, TraceError, shape_of_pod

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_MIB = 1 << 20
_FINISHED = ("Succeeded", "Failed")
_MIRROR = "kubernetes.io/config.mirror"
Item = TypeVar("Item")


def read_snapshot(name: str, file: Path) -> Trace:
    """Read a snapshot. Raise TraceError."""
    try:
        objects = read_objects(file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except SnapshotError as error:
        raise TraceError(str(error)) from error
    return snapshot_trace(name, objects, digest, str(file))


def snapshot_trace(name: str, objects: Sequence[Object], digest: str, source: str) -> Trace:
    """Return the nodes and pods among the objects as a trace. `source`: for messages. Raise TraceError."""
    pods = [thing for thing in objects if thing["kind"] == "Pod" and _is_scheduled(thing)]
    reserved: dict[str, Counter[str]] = {}
    for thing in filter(_is_of_daemon_set, pods):
        node = (thing.get("spec") or {}).get("nodeName", "")
        reserved.setdefault(node, Counter()).update(_convert(Pod, _amounts, thing, source))
    machines = [
        _convert(Node, partial(_machine, reserved=reserved), thing, source) for thing in objects if thing["kind"] == "Node"
    ]
    if not machines:
        raise TraceError(f"{source}: has no nodes")
    found = [_convert(Pod, _task, thing, source) for thing in pods if not _is_of_daemon_set(thing)]
    if not found:
        raise TraceError(f"{source}: has no pods")
    tasks = sorted(found, key=lambda task: (task.arrival, task.name))
    if twice := [name for name, number in Counter(task.name for task in tasks).items() if number > 1]:
        raise TraceError(f"{source}: two pods have the name {twice[0]}")
    start = tasks[0].arrival
    return Trace(name, machines, [replace(task, arrival=task.arrival - start) for task in tasks], digest)


def with_durations(trace: Trace, stages: str) -> Trace:
    """Return the trace with durations from stages for tasks without one. `stages`: a file of KWOK's Stages, or a set of the
    simulated runtime. Raise TraceError for an unsupported field."""
    try:
        parsed = load_stages(stages)
    except StagesError as error:
        raise TraceError(f"stages: {error}") from error
    path = Path(stages)
    text = path.read_bytes() if path.is_file() else stages.encode()
    digest = hashlib.sha256(trace.digest.encode() + text).hexdigest()
    return replace(trace, tasks=[_with_duration(task, parsed) for task in trace.tasks], digest=digest)


def _with_duration(task: Task, stages: Stages) -> Task:
    return replace(task, duration=run_seconds(task.pod(""), stages)) if math.isinf(task.duration) else task


def run_seconds(pod: Pod, stages: Stages) -> float:
    """Return the seconds from the bind of a pod to the end of its last main container, or infinity. Raise TraceError."""
    default = stages.behaviour_of(pod, Behaviour())
    try:
        annotated = annotated_behaviour(pod, default)
    except UnsupportedPod as error:
        raise TraceError(f"pod {pod.metadata.name}: {error}") from error
    ends = []
    for container in pod.spec.containers:
        behaviour = annotated.behaviour_of(container.name) if annotated is not None else default
        ends.append(math.inf if behaviour.run_seconds is None else behaviour.start_seconds + behaviour.run_seconds)
    return max(ends, default=math.inf)


def _is_of_daemon_set(pod: Object) -> bool:
    return any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())


def _amounts(pod: Pod) -> Counter[str]:
    """Return the requests of a pod."""
    made = Pod()
    made.CopyFrom(pod)
    _convert_containers(made)
    return Counter(dict(fit.pod_requests(made).amounts))


def _is_scheduled(pod: Object) -> bool:
    """Return whether a scheduler places the pod: no static pod of a kubelet, and none that is being deleted."""
    metadata = pod["metadata"]
    return _MIRROR not in (metadata.get("annotations") or {}) and "deletionTimestamp" not in metadata


def _convert(kind: Any, convert: Callable[[Any], Item], thing: Object, source: str) -> Item:
    """Decode and convert an object. Fields that this version does not know are omitted, others must be valid."""
    where = f"{source}: {thing['kind']} {thing['metadata']['name']}"
    message, problems = decode_valid_part(kind, thing)
    if invalid := [str(problem) for problem in problems if not problem.unknown]:
        raise TraceError(f"{where}: {invalid[0]}")
    try:
        return convert(message)
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from None


def _machine(node: Node, reserved: Mapping[str, Mapping[str, int]]) -> Machine:
    """`reserved`: amounts by node and resource that its tasks cannot use."""
    made = Node()
    made.metadata.name = node.metadata.name
    for key, value in node.metadata.labels.items():
        made.metadata.labels[key] = value
    made.spec.taints.extend(node.spec.taints)
    made.spec.unschedulable = node.spec.unschedulable
    for resource, quantity in node.status.allocatable.items():
        made.status.allocatable[resource].CopyFrom(quantity)
    _convert_gpus(made.status.allocatable)
    model = next((node.metadata.labels[key] for key in (MODEL_LABEL, *PRODUCT_LABELS) if key in node.metadata.labels), "")
    if model:
        made.metadata.labels[MODEL_LABEL] = model
    for resource, quantity in made.status.allocatable.items():
        made.status.capacity[resource].CopyFrom(quantity)
    before = fit.allocatable_amounts(made)
    for resource, taken in reserved.get(node.metadata.name, {}).items():
        if resource in before:
            made.status.allocatable[resource].string = format_amount(resource, max(before[resource] - taken, 0))
    amounts = fit.allocatable_amounts(made)
    gpus = amounts.get(GPU_MILLI, 0) // WHOLE
    manifest = made.SerializeToString(deterministic=True)
    return Machine(
        made.metadata.name,
        amounts.get("cpu", 0),
        amounts.get("memory", 0) // _MIB,
        gpus,
        model if gpus else "",
        manifest=manifest,
    )


def _convert_gpus(quantities: Any) -> None:
    """Replace the GPUs of device plugins in a map of quantities of protobuf."""
    total = sum(amount(resource, quantities[resource].string) for resource in GPU_RESOURCES if resource in quantities)
    for resource in GPU_RESOURCES:
        quantities.pop(resource, None)
    if total:
        quantities[GPU_MILLI].string = f"{total * WHOLE}"


def _convert_containers(pod: Pod) -> None:
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        for requirements in (container.resources.requests, container.resources.limits):
            _convert_gpus(requirements)


def _task(pod: Pod) -> Task:
    metadata, created = pod.metadata, to_seconds(pod.metadata.creationTimestamp)
    made = Pod()
    made.metadata.namespace = metadata.namespace or "default"
    for key, value in metadata.labels.items():
        made.metadata.labels[key] = value
    for key, value in metadata.annotations.items():
        if key != INDEX_ANNOTATION:
            made.metadata.annotations[key] = value
    controllers = [owner for owner in metadata.ownerReferences if owner.controller]
    made.metadata.ownerReferences.extend(controllers)
    made.spec.CopyFrom(pod.spec)
    for name in ("nodeName", "schedulingGates", "volumes"):
        made.spec.ClearField(name)
    _convert_containers(made)
    duration = _finished_seconds(pod)
    return Task(
        f"{metadata.name}.{made.metadata.namespace}" if made.metadata.namespace != "default" else metadata.name,
        shape_of_pod(made),
        created,
        run_seconds(pod, Stages(())) if duration is None else duration,
        pod.spec.priority,
        controllers[0].name if controllers else "",
        made.SerializeToString(deterministic=True),
    )


def _finished_seconds(pod: Pod) -> float | None:
    """Return the seconds from the start to the end of a finished pod, or None."""
    if pod.status.phase not in _FINISHED or not pod.status.HasField("startTime"):
        return None
    ends = [
        to_seconds(status.state.terminated.finishedAt)
        for status in pod.status.containerStatuses
        if status.state.terminated.HasField("finishedAt")
    ]
    return max(0.0, max(ends) - to_seconds(pod.status.startTime)) if ends else None
