"""A generated day of a cluster: services, which run all day, and jobs, which end.

The distributions follow published traces of Google's clusters. Most pods request little, and a few request much. CPU and memory
are almost independent. Most jobs are short, and long-running pods use most of the capacity.

Sources: C. Reiss et al., Heterogeneity and Dynamicity of Clouds at Scale (SoCC 2012); M. Tirmizi et al., Borg: the Next
Generation (EuroSys 2020).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pinnace.api.core_v1_pb2 import Node, Pod

HOURS = 24.0
ZONES = ("zone-a", "zone-b", "zone-c")
MACHINES = ((16, 64), (32, 64), (32, 256))
"""CPUs and GiB of each kind of machine."""
NODE_CPU = sum(cpus for cpus, _ in MACHINES) / len(MACHINES)
FILLED = 0.7
"""The fraction of the cluster's CPU that is requested at the peak."""
SERVICES = 0.6
"""The fraction of these requests that belongs to services."""
SHORT, LONG = 2.0, 12.0
"""Mean duration in hours of nine of ten jobs, and of the others."""


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """A pod that is created at hour `at` and ends at hour `leaves`. Pods with `leaves` after HOURS do not end."""

    at: float
    number: int
    group: str
    pod: Pod
    leaves: float


def nodes(count: int, labels: Mapping[str, Sequence[str]] | None = None, seed: int = 0) -> Iterator[Node]:
    """Machines of three kinds in three zones. `labels`: the possible values of additional labels, chosen at random."""
    rng = random.Random(seed)
    for number in range(count):
        cpus, gib = MACHINES[number % len(MACHINES)]
        node = Node()
        node.metadata.name = f"node-{number}"
        node.metadata.labels["kubernetes.io/hostname"] = node.metadata.name
        node.metadata.labels["topology.kubernetes.io/zone"] = ZONES[number // len(MACHINES) % len(ZONES)]
        for resource, amount in (("cpu", f"{cpus}"), ("memory", f"{gib}Gi"), ("pods", "110")):
            node.status.capacity[resource].string = node.status.allocatable[resource].string = amount
        for key, values in (labels or {}).items():
            node.metadata.labels[key] = rng.choice(values)
        yield node


def trace(count: int, rng: random.Random) -> list[Arrival]:
    """Return the arrivals for this number of nodes, ordered by time."""
    made: list[Arrival] = []
    room = count * NODE_CPU * FILLED

    def add(at: float, group: str, pod: Pod, leaves: float) -> None:
        number = len(made)
        pod.metadata.name, pod.metadata.uid = f"pod-{number}", f"{number}"
        made.append(Arrival(at, number, group, pod, leaves))

    asked = 0.0
    while asked < room * SERVICES:
        group, replicas, at = f"service-{len(made)}", min(200, int(rng.paretovariate(1.0)) + 1), rng.uniform(0, HOURS / 4)
        cpu, gib = _size(rng)
        for _ in range(replicas):
            add(at, group, _pod(group, cpu, gib), HOURS * 2)
        asked += replicas * cpu
    asked = 0.0
    while asked < room * (1 - SERVICES) * HOURS:
        group, cpu, gib = f"job-{len(made)}", *_size(rng)
        at, lasts = rng.uniform(0, HOURS), rng.expovariate(1 / (LONG if rng.random() < 0.1 else SHORT))
        for _ in range(rng.randint(1, 20)):
            add(at, group, _pod(group, cpu, gib), at + lasts)
            asked += cpu * lasts
    return sorted(made)


def _size(rng: random.Random) -> tuple[float, float]:
    """CPUs and GiB of a pod, from independent heavy-tailed distributions."""
    return min(8.0, 0.25 * rng.paretovariate(0.9)), min(32.0, 0.5 * rng.paretovariate(0.9))


def _pod(group: str, cpu: float, gib: float) -> Pod:
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.labels["app"] = group
    pod.metadata.ownerReferences.add(apiVersion="apps/v1", kind="ReplicaSet", name=group, uid=group, controller=True)
    requests = pod.spec.containers.add(name="app", image="example.com/app:1").resources.requests
    requests["cpu"].string, requests["memory"].string = f"{cpu * 1000:.0f}m", f"{gib * 1024:.0f}Mi"
    return pod
