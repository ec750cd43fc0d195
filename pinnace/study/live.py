"""A sample of a study on a cluster of real processes, and the replay of its schedulers' decisions.

    trace -> sample -> pods, in the order of arrival --> API server -> scheduler --> kubelets (simulated containers)
                                                                          |
                                                               OUT/live/.../SCHEDULER.jsonl -> replay: the same nodes?

The scheduler records what its decisions depend on (`pinnace.scheduler.recording`). The replay makes all decisions again from
the recordings, offline, and compares the nodes. A placed pod must have the node of a replayed decision, too, in the API. With
`kill_leader`, the leader is killed after half of the tasks; the recordings of both leaders are replayed.

    OUT/live/TRACE/PROFILE/SEED/live.json      the summary
                                placements.csv
                                SCHEDULER.jsonl

Limits: an evicted task does not arrive again. A trace with times is compressed to `seconds`. Policies do not learn from the
past of the trace.
"""

import asyncio
import csv
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import yaml

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.machines import MachineOptions
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import SCHEDULER, ClusterSpec, ProcessHooks
from pinnace.cluster.startup import StartProgress
from pinnace.cluster.view import scheduler_leader
from pinnace.scheduler.config import read_configuration
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, MODEL_LABEL, WHOLE
from pinnace.study.execution import Run
from pinnace.study.replay import ReplayedAttempt, replay_recording
from pinnace.study.trace import PODS_PER_NODE, Machine, Task, Trace
from pinnace.verification.bench.calibration import scratch_cluster

SETTLE_TIMEOUT = 120.0
"""Seconds after the last arrival in which all pods must have been tried, and no more are placed."""
QUIET = 3.0
"""Seconds without a new placement after which the cluster has settled."""
BATCH = 20
"""Maximum number of pods of one create."""
NODES = 200
T = TypeVar("T")
RUN_SECONDS = "pinnace.io/run-seconds"


class LiveError(Exception):
    """The cluster did not do what the comparison needs."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """`nodes`: maximum number of machines of the sample. `seconds`: time for the arrivals of a trace with times."""

    nodes: int = NODES
    seconds: float = 60.0
    kill_leader: bool = False


@dataclass(frozen=True, slots=True)
class LiveResult:
    """`different` are the attempts whose replay chose another node, and `unexplained` the placed pods without a replayed
    decision for their node."""

    nodes: int
    tasks: int
    placed: int
    attempts: int
    schedulers: dict[str, int]
    """Placed pods by the scheduler that decided."""
    different: list[ReplayedAttempt]
    unexplained: list[str]
    seconds: float
    gap: float
    """The longest time in seconds between two decisions."""

    @property
    def alike(self) -> bool:
        return not self.different and not self.unexplained and self.placed > 0


def sample(trace: Trace, nodes: int) -> Trace:
    """Return a trace with at most this number of machines, and the same fraction of the tasks, evenly chosen from both."""
    if len(trace.machines) <= nodes:
        return trace
    tasks = max(1, len(trace.tasks) * nodes // len(trace.machines))
    return replace(trace, machines=_evenly(trace.machines, nodes), tasks=_evenly(trace.tasks, tasks))


def _evenly(items: Sequence[T], number: int) -> list[T]:
    return [items[index * len(items) // number] for index in range(number)]


async def run_live(run: Run, trace: Trace, options: LiveOptions, folder: Path, progress: StartProgress) -> LiveResult:
    """Run the trace on a new cluster, which is removed at the end. Raise LiveError, ClusterError, ApiError, RecordingError."""
    _prepare_folder(folder)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pinnace-study-") as scratch:
        machines = Path(scratch) / "machines.yaml"
        machines.write_text(yaml.safe_dump([_shape_of(machine) for machine in trace.machines]))
        spec = ClusterSpec(
            nodes=len(trace.machines),
            schedulers=2 if options.kill_leader else 1,
            apiservers=1,
            machine=MachineOptions(machines=str(machines)),
            scheduler_config=run.file,
        )

        def arguments(process: str) -> Sequence[str]:
            if not process.startswith(SCHEDULER):
                return ()
            return "--seed", str(run.seed), "--record", str((folder / f"{process}.jsonl").resolve())

        hooks = ProcessHooks(arguments=arguments)
        async with scratch_cluster(spec, progress, hooks=hooks) as cluster, cluster.client() as client:
            progress.waiting(f"the arrivals of {len(trace.tasks)} tasks")
            await _create_tasks(cluster, client, run, trace, options)
            progress.waiting("the last decisions")
            placed = await _wait_until_settled(client)
    progress.waiting("the replay")
    result = await asyncio.to_thread(_compare, run, trace, placed, folder, time.monotonic() - began)
    (folder / "live.json").write_text(json.dumps(asdict(result), indent=2) + "\n")
    return result


def _prepare_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()


def _shape_of(machine: Machine) -> dict[str, object]:
    """Return the machine as a kubelet's shape (pinnace.api.machines)."""
    labels = {**({MODEL_LABEL: machine.model} if machine.model else {}), **machine.labels}
    return {
        "count": 1,
        "cpu": f"{machine.cpu}m",
        "memory": f"{machine.memory}Mi",
        "pods": PODS_PER_NODE,
        "zones": [machine.zone] if machine.zone else 0,
        "labels": labels,
        **({"resources": {GPU_MILLI: machine.gpus * WHOLE}} if machine.gpus else {}),
    }


def _pod_of(task: Task, profile: str, speed: float) -> Pod:
    """Return the pod for the API. The server chooses its UID, and computes the priority from a class."""
    pod = task.pod(profile)
    pod.metadata.ClearField("uid")
    pod.ClearField("status")
    pod.spec.ClearField("priority")
    pod.spec.restartPolicy = "Never"
    resources = pod.spec.containers[0].resources
    if GPU_MILLI in resources.requests:  # the API requires equal limits of extended resources
        resources.limits[GPU_MILLI].CopyFrom(resources.requests[GPU_MILLI])
    if task.priority:
        pod.spec.priorityClassName = _class_name(task.priority)
    if math.isfinite(task.duration):
        pod.metadata.annotations[RUN_SECONDS] = f"{max(task.duration / speed, 0.1):.3f}"
    return pod


def _class_name(priority: int) -> str:
    return f"study-{priority}" if priority > 0 else f"study-minus-{-priority}"


async def _create_tasks(cluster: Cluster, client: Client, run: Run, trace: Trace, options: LiveOptions) -> None:
    """Create the pods in the order of arrival. Kill the leader after half of them, if chosen. Raise LiveError."""
    for priority in sorted({task.priority for task in trace.tasks if task.priority}):
        item = PriorityClass(value=priority)
        item.metadata.name = _class_name(priority)
        await client.priority_classes.create(item)
    last = trace.tasks[-1].arrival if trace.tasks else 0.0
    speed = 1.0 if run.plan.inflate or not last else max(1.0, last / options.seconds)
    began, created = time.monotonic(), 0
    killed = not options.kill_leader
    for batch in _batches(trace.tasks, speed, timed=not run.plan.inflate):
        if not run.plan.inflate:
            await asyncio.sleep(max(0.0, began + batch[0].arrival / speed - time.monotonic()))
        outcomes = await client.pods.create_batch([_pod_of(task, run.profile, speed) for task in batch])
        for task, outcome in zip(batch, outcomes, strict=True):
            if outcome.HasField("error"):
                raise LiveError(f"pod {task.name} was not created: {from_status(outcome.error)}")
        created += len(batch)
        if not killed and created >= len(trace.tasks) / 2:
            killed = True
            leader = await scheduler_leader(client)
            if leader is None:
                raise LiveError("no scheduler leads, so none can be killed")
            cluster.kill(leader.holder)


def _batches(tasks: Sequence[Task], speed: float, *, timed: bool) -> Iterator[list[Task]]:
    """Yield consecutive tasks: at most BATCH, and of a trace with times only those that arrive within 50 ms."""
    batch: list[Task] = []
    for task in tasks:
        if batch and (len(batch) == BATCH or (timed and (task.arrival - batch[0].arrival) / speed > 0.05)):
            yield batch
            batch = []
        batch.append(task)
    if batch:
        yield batch


async def _wait_until_settled(client: Client) -> dict[str, tuple[str, str]]:
    """Return the UID and node of each placed pod, by name. Raise LiveError after SETTLE_TIMEOUT."""
    counted, since = -1, time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_TIMEOUT):
            while True:
                pods = (await client.pods.list()).items
                placed = {pod.metadata.name: (pod.metadata.uid, pod.spec.nodeName) for pod in pods if pod.spec.nodeName}
                waiting = [pod for pod in pods if not pod.spec.nodeName]
                if len(placed) != counted:
                    counted, since = len(placed), time.monotonic()
                elif time.monotonic() - since >= QUIET and all(map(_was_refused, waiting)):
                    return placed
                await asyncio.sleep(0.5)
    raise LiveError(f"the cluster did not settle within {SETTLE_TIMEOUT:g} s after the last arrival: {counted} pods are placed")


def _was_refused(pod: Pod) -> bool:
    return any(item.type == "PodScheduled" and item.status == "False" for item in pod.status.conditions)


def _compare(run: Run, trace: Trace, placed: dict[str, tuple[str, str]], folder: Path, seconds: float) -> LiveResult:
    """Replay the recordings, and write the placements. Raise RecordingError."""
    configuration = read_configuration(Path(run.file))
    attempts = [
        attempt
        for file in sorted(folder.glob("*.jsonl"))
        for attempt in replay_recording(file, configuration)
    ]  # fmt: skip
    decided = {(item.uid, item.replayed): item for item in attempts if item.replayed}
    schedulers: Counter[str] = Counter()
    unexplained = []
    with (folder / "placements.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("task", "node", "scheduler"))
        for name, (uid, node) in sorted(placed.items()):
            attempt = decided.get((uid, node))
            writer.writerow((name, node, attempt.scheduler if attempt else ""))
            if attempt is None:
                unexplained.append(name)
            else:
                schedulers[attempt.scheduler] += 1
    times = sorted(item.time for item in attempts)
    return LiveResult(
        nodes=len(trace.machines),
        tasks=len(trace.tasks),
        placed=len(placed),
        attempts=len(attempts),
        schedulers=dict(schedulers),
        different=[item for item in attempts if item.recorded != item.replayed],
        unexplained=unexplained,
        seconds=seconds,
        gap=max((after - before for before, after in pairwise(times)), default=0.0),
    )
