"""Traces: the nodes of a cluster, and the tasks that arrive.

Four sources:

    openb      the CSV files of a public trace of a GPU cluster
    csv        the format below
    snapshot   the nodes and pods of a cluster (pinnace.study.snapshots)
    generated  a seeded generator that needs no files

The CSV format has a header line. Columns other than `name` may be absent or empty; unknown columns are an error.

    nodes  name, cpu_milli, memory_mib, gpu, gpu_model, zone
    tasks  name, cpu_milli, memory_mib, gpu, gpu_milli, gpu_models, priority, arrival, duration, group

`gpu` is a number of devices. `gpu_milli` is the share of each of them in thousandths (default 1000); a share below 1000
requires `gpu` 1. `gpu_models` lists the acceptable models, separated by "|". `arrival` and `duration` are in seconds; without a
duration the task does not end. Tasks with the same `group` count as replicas of one service.

`inflate_demand` makes tasks for a demand of N percent of the cluster's capacity: all tasks in random order, then tasks that are
drawn with replacement; or fewer tasks, if the trace has more. Its tasks arrive one after the other and do not end. The nodes
are in random order, too, because a policy may prefer the first of equal nodes.
Source: Q. Weng et al., Beware of Fragmentation (USENIX ATC 2023), section 6.
"""

import csv
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.wellknown import HOSTNAME_LABEL, ZONE_LABEL
from pinnace.fit import pod_requests
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, MODEL_LABEL, WHOLE, gpu_request

PODS_PER_NODE = 1001
INTERVAL = 0.01
"""Seconds between the arrivals of inflated tasks."""
HOUR = 3600.0
_MIB = 1 << 20


class TraceError(Exception):
    """A trace cannot be read. The message names the file and line."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `cpu` in millicores, `memory` in MiB, `gpus` in devices."""

    name: str
    cpu: int
    memory: int
    gpus: int = 0
    model: str = ""
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    manifest: bytes = b""
    """The encoded node of a snapshot, or empty."""

    def node(self) -> Node:
        if self.manifest:
            return Node.FromString(self.manifest)
        node = Node()
        node.metadata.name = self.name
        node.metadata.labels[HOSTNAME_LABEL] = self.name
        if self.zone:
            node.metadata.labels[ZONE_LABEL] = self.zone
        if self.model:
            node.metadata.labels[MODEL_LABEL] = self.model
        for key, value in self.labels.items():
            node.metadata.labels[key] = value
        amounts = {"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi", "pods": f"{PODS_PER_NODE}"}
        if self.gpus:
            amounts[GPU_MILLI] = f"{self.gpus * WHOLE}"
        for resource, amount in amounts.items():
            node.status.capacity[resource].string = node.status.allocatable[resource].string = amount
        return node


@dataclass(frozen=True, slots=True)
class Shape:
    """What a task requests. `milli` thousandths of each of `gpus` devices, of one of the `models` if there are any."""

    cpu: int
    memory: int = 0
    gpus: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def gpu_milli(self) -> int:
        """The thousandths of all devices."""
        return self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class Task:
    """A task. Times are in seconds; `duration` is infinite for a task that does not end."""

    name: str
    shape: Shape
    arrival: float = 0.0
    duration: float = math.inf
    priority: int = 0
    group: str = ""
    manifest: bytes = b""
    """The encoded pod of a snapshot, or empty."""

    def pod(self, scheduler_name: str) -> Pod:
        """Return the pending pod. Its UID is its name, so that equal seeds give equal decisions."""
        pod, shape = Pod.FromString(self.manifest), self.shape
        metadata, spec = pod.metadata, pod.spec
        metadata.name = metadata.uid = self.name
        pod.status.phase = "Pending"
        if self.manifest:
            spec.schedulerName = scheduler_name
            return pod
        metadata.namespace = "default"
        if self.group:
            metadata.labels["app"] = self.group
            owner = metadata.ownerReferences.add(apiVersion="apps/v1", kind="ReplicaSet", controller=True)
            owner.name = owner.uid = self.group
        spec.schedulerName, spec.priority = scheduler_name, self.priority
        requests = spec.containers.add(name="main", image="example.com/task:1").resources.requests
        requests["cpu"].string, requests["memory"].string = f"{shape.cpu}m", f"{shape.memory}Mi"
        if shape.gpus:
            requests[GPU_MILLI].string = f"{shape.gpu_milli}"
        if shape.models:
            terms = spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
            terms.add().matchExpressions.add(key=MODEL_LABEL, operator="In", values=shape.models)
        return pod


def shape_of_pod(pod: Pod) -> Shape:
    """Return the shape of a pod. The models are those of its node affinity to the label of the model. Raise ValueError for an
    invalid number of GPUs."""
    requests = pod_requests(pod)
    amounts, gpu = dict(requests.amounts), gpu_request(requests)
    models: set[str] = set()
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    for term in required.nodeSelectorTerms:
        for expression in term.matchExpressions:
            if expression.key == MODEL_LABEL and expression.operator == "In":
                models.update(expression.values)
    number, milli = (gpu.number, gpu.milli) if gpu is not None else (0, 0)
    return Shape(amounts.get("cpu", 0), amounts.get("memory", 0) // _MIB, number, milli, tuple(sorted(models)))


@dataclass(frozen=True)
class Trace:
    """A cluster and its tasks, ordered by arrival."""

    name: str
    machines: Sequence[Machine]
    tasks: Sequence[Task]
    digest: str = ""
    """The hash of the files, or of the generator's parameters."""
    past: Sequence[Task] = ()
    """The tasks that policies may learn from: all tasks before inflation, or those of an earlier time."""

    @cached_property
    def resource(self) -> str:
        """The resource in which the demand is measured: GPUs, or CPU in a cluster without GPUs."""
        return GPU_MILLI if any(machine.gpus for machine in self.machines) else "cpu"

    @cached_property
    def capacity(self) -> int:
        if self.resource == GPU_MILLI:
            return sum(machine.gpus for machine in self.machines) * WHOLE
        return sum(machine.cpu for machine in self.machines)

    def demand_of(self, task: Task) -> int:
        """Return the request of the task in `resource`."""
        return task.shape.gpu_milli if self.resource == GPU_MILLI else task.shape.cpu


def inflate_demand(trace: Trace, percent: float, seed: int) -> Trace:
    """Return the trace with a demand of `percent` of the capacity. See the docstring of the module."""
    rng, limit = random.Random(seed), trace.capacity * percent / 100
    tasks = sorted(trace.tasks, key=lambda task: task.name)
    base = list(tasks)
    rng.shuffle(tasks)
    total = sum(map(trace.demand_of, tasks))
    if not total:
        raise TraceError(f"{trace.name}: no task requests {trace.resource}, so the trace cannot be inflated")
    while total > limit:
        total -= trace.demand_of(tasks.pop(rng.randrange(len(tasks))))
    for number in count():
        task = rng.choice(base)
        if total + trace.demand_of(task) > limit:
            break
        total += trace.demand_of(task)
        tasks.append(replace(task, name=f"{task.name}-{number}"))
    machines = list(trace.machines)
    rng.shuffle(machines)
    arriving = [replace(task, arrival=i * INTERVAL, duration=math.inf) for i, task in enumerate(tasks)]
    return replace(trace, machines=machines, tasks=arriving, past=trace.past or base)


def split_past_tasks(trace: Trace, fraction: float) -> Trace:
    """Move the first `fraction` of the tasks, in the order of arrival, into the past. The others arrive from time 0 on."""
    number = int(len(trace.tasks) * fraction)
    past, rest = trace.tasks[:number], trace.tasks[number:]
    start = rest[0].arrival if rest else 0.0
    return replace(trace, past=past, tasks=[replace(task, arrival=task.arrival - start) for task in rest])


# --- files


def read_openb(name: str, nodes: Path, tasks: Path) -> Trace:
    """Read the files of the openb trace. A task runs from its scheduled time to its deletion. Raise TraceError."""
    machines = _read_rows(nodes, _openb_machine)
    return _trace(name, machines, _read_rows(tasks, _openb_task), (nodes, tasks))


def read_csv(name: str, nodes: Path, tasks: Path) -> Trace:
    """Read files in the format of the module's docstring. Raise TraceError."""
    return _trace(
        name, _read_rows(nodes, _csv_machine, _NODE_COLUMNS), _read_rows(tasks, _csv_task, _TASK_COLUMNS), (nodes, tasks)
    )


def write_csv(trace: Trace, nodes: Path, tasks: Path) -> None:
    """Write the trace in our format."""
    with nodes.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_NODE_COLUMNS)
        writer.writerows((m.name, m.cpu, m.memory, m.gpus, m.model, m.zone) for m in trace.machines)
    with tasks.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_TASK_COLUMNS)
        for t in trace.tasks:
            duration = "" if math.isinf(t.duration) else f"{t.duration:.17g}"
            models = "|".join(t.shape.models)
            shape = (t.shape.cpu, t.shape.memory, t.shape.gpus, t.shape.milli, models)
            writer.writerow((t.name, *shape, t.priority, f"{t.arrival:.17g}", duration, t.group))


_NODE_COLUMNS = ("name", "cpu_milli", "memory_mib", "gpu", "gpu_model", "zone")
_TASK_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "gpu", "gpu_milli", "gpu_models"),
    *("priority", "arrival", "duration", "group"),
)
Row = Mapping[str, str]


def _trace(name: str, machines: Sequence[Machine], tasks: Sequence[Task], files: Iterable[Path]) -> Trace:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    names = [machine.name for machine in machines], [task.name for task in tasks]
    for found, file in zip(names, files, strict=True):
        if not found or len(set(found)) < len(found):
            raise TraceError(f"{file}: {'two rows have the same name' if found else 'no rows'}")
    arriving = sorted(tasks, key=lambda task: task.arrival)
    start = arriving[0].arrival
    return Trace(name, machines, [replace(task, arrival=task.arrival - start) for task in arriving], digest.hexdigest())


def _read_rows(file: Path, parse: Callable[[Row], Any], columns: Sequence[str] = ()) -> list[Any]:
    try:
        with file.open(newline="") as stream:
            reader = csv.DictReader(stream)
            names = reader.fieldnames or []
            if columns and (unknown := [name for name in names if name not in columns]):
                raise TraceError(f"{file}: unknown column {', '.join(unknown)}; the columns are {', '.join(columns)}")
            items = []
            for row in reader:
                try:
                    items.append(parse(row))
                except KeyError as error:
                    raise TraceError(f"{file}: there is no column {error.args[0]}") from None
                except (ValueError, TypeError) as error:
                    raise TraceError(f"{file}:{reader.line_num}: {error}") from None
            return items
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise TraceError(f"{file}: expected a text in UTF-8") from None


def _openb_machine(row: Row) -> Machine:
    return Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])


def _openb_task(row: Row) -> Task:
    created = _parse_seconds(row.get("creation_time"), 0.0)
    started = max(created, _parse_seconds(row.get("scheduled_time"), created))
    duration = _parse_seconds(row.get("deletion_time"), math.inf) - started
    models = row.get("gpu_spec") or ""
    shape = _parse_shape(row["cpu_milli"], row["memory_mib"], row["num_gpu"], row["gpu_milli"], models)
    return Task(row["name"], shape, created, max(duration, 0.0))


def _csv_machine(row: Row) -> Machine:
    cpu, memory, gpus = (int(row.get(key) or 0) for key in ("cpu_milli", "memory_mib", "gpu"))
    return Machine(_parse_name(row), cpu, memory, gpus, row.get("gpu_model") or "", row.get("zone") or "")


def _csv_task(row: Row) -> Task:
    shape = _parse_shape(*(row.get(key) or "" for key in ("cpu_milli", "memory_mib", "gpu", "gpu_milli", "gpu_models")))
    arrival, duration = _parse_seconds(row.get("arrival"), 0.0), _parse_seconds(row.get("duration"), math.inf)
    return Task(_parse_name(row), shape, arrival, duration, int(row.get("priority") or 0), row.get("group") or "")


def _parse_name(row: Row) -> str:
    if not row["name"]:
        raise ValueError("the name is empty")
    return row["name"]


def _parse_shape(cpu: str, memory: str, gpus: str, milli: str, models: str) -> Shape:
    number, share = int(gpus or 0), int(milli or WHOLE)
    if number and not 0 < share <= WHOLE:
        raise ValueError(f"gpu_milli must be from 1 to {WHOLE}, got {share}")
    if number > 1 and share != WHOLE:
        raise ValueError(f"a share of {share} of {number} devices is not supported; a share is of one device")
    amounts = int(cpu or 0), int(memory or 0)
    if min(*amounts, number) < 0:
        raise ValueError("negative amount")
    listed = tuple(sorted({model for model in models.split("|") if model}))
    return Shape(*amounts, number, share, listed) if number else Shape(*amounts)


def _parse_seconds(text: str | None, default: float) -> float:
    value = float(text) if text else default
    if math.isnan(value) or value < 0:
        raise ValueError(f"expected seconds, got {text}")
    return value


# --- the generator


@dataclass(frozen=True, slots=True)
class Generated:
    """Parameters of a generated trace: `nodes` machines, and tasks that request `load` of the CPU during `hours`.

    The distributions follow published traces of Google's clusters: most tasks request little, and a few request much; most jobs
    are short, and services, which run all day, use most of the capacity. `gpus` is the fraction of the machines with 8 GPUs.
    `high` is the fraction of the jobs with priority 100.

    Sources: C. Reiss et al., Heterogeneity and Dynamicity of Clouds at Scale (SoCC 2012); M. Tirmizi et al., Borg: the Next
    Generation (EuroSys 2020).
    """

    nodes: int = 30
    hours: float = 24.0
    load: float = 0.7
    services: float = 0.6
    gpus: float = 0.0
    high: float = 0.0
    seed: int = 0
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """Additional labels of nodes, each with its possible values."""


ZONES = ("zone-a", "zone-b", "zone-c")
MACHINES = ((16, 64), (32, 64), (32, 256))
"""CPUs and GiB of each kind of machine."""
MODELS = ("A10", "V100")
SHORT, LONG = 2.0, 12.0
"""Mean duration in hours of nine of ten jobs, and of the others."""
HIGH_PRIORITY = 100


def generate(name: str, parameters: Generated) -> Trace:
    """Return the trace. Equal parameters give equal traces."""
    rng = random.Random(parameters.seed)
    machines = [_machine(number, parameters, rng) for number in range(parameters.nodes)]
    room, hours = sum(machine.cpu for machine in machines) / 1000 * parameters.load, parameters.hours
    tasks: list[Task] = []

    def add(group: str, shape: Shape, arrival: float, duration: float, priority: int = 0) -> None:
        tasks.append(Task(f"{group}-{len(tasks)}", shape, arrival * HOUR, duration * HOUR, priority, group))

    asked = 0.0
    while asked < room * parameters.services:
        group, shape, at = f"service-{len(tasks)}", _random_shape(rng, 0.0), rng.uniform(0, hours / 4)
        for _ in range(min(200, int(rng.paretovariate(1.0)) + 1)):
            add(group, shape, at, math.inf)
            asked += shape.cpu / 1000
    asked = 0.0
    while asked < room * (1 - parameters.services) * hours:
        group, shape = f"job-{len(tasks)}", _random_shape(rng, parameters.gpus)
        at, lasts = rng.uniform(0, hours), rng.expovariate(1 / (LONG if rng.random() < 0.1 else SHORT))
        priority = HIGH_PRIORITY if parameters.high and rng.random() < parameters.high else 0
        for _ in range(rng.randint(1, 20)):
            add(group, shape, at, lasts, priority)
            asked += shape.cpu / 1000 * lasts
    digest = hashlib.sha256(repr(sorted(asdict(parameters).items())).encode()).hexdigest()
    return Trace(name, machines, sorted(tasks, key=lambda task: (task.arrival, task.name)), digest)


def _machine(number: int, parameters: Generated, rng: random.Random) -> Machine:
    cpus, gib = MACHINES[number % len(MACHINES)]
    zone = ZONES[number // len(MACHINES) % len(ZONES)]
    labels = {key: rng.choice(values) for key, values in parameters.labels.items()}
    has_gpus = (number + 1) * parameters.gpus // 1 > number * parameters.gpus // 1  # spread evenly
    model = MODELS[number % len(MODELS)] if has_gpus else ""
    return Machine(f"node-{number}", cpus * 1000, gib * 1024, 8 if has_gpus else 0, model, zone, labels)


def _random_shape(rng: random.Random, gpus: float) -> Shape:
    """CPU and memory are independent and heavy-tailed."""
    cpu, gib = min(8.0, 0.25 * rng.paretovariate(0.9)), min(32.0, 0.5 * rng.paretovariate(0.9))
    amounts = round(cpu * 1000), round(gib * 1024)
    if not gpus or rng.random() >= gpus:
        return Shape(*amounts)
    if rng.random() < 0.5:
        return Shape(*amounts, 1, rng.choice((100, 250, 500, 750)))
    return Shape(*amounts, rng.choice((1, 1, 1, 2, 4)), WHOLE)
