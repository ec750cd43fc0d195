"""Decide whether a pod fits a node. The scheduler, kubelet admission and the checkers all use this package.

If the scheduler and the kubelet apply different rules, the scheduler places a pod that the kubelet rejects, in an endless loop
(nomad#13017). The rules therefore exist once, in two forms. tests/unit/fit/test_agreement.py proves the forms equal:

* Scalar, for one pod and one node: `check(pod, node, pods_on_node)`, or a `Room` that the caller keeps up to date.
* Table, for one pod and all nodes, over NumPy columns: `pinnace.fit.table`.

The rules are those of Kubernetes' NodeResourcesFit and NodePorts plugins:

* The requests of a pod (`pod_requests`) are the larger of two amounts: the sum over its containers and sidecars, and the
  largest init container plus the sidecars that start before it. Overhead and one unit of the resource "pods" are added. A
  limit without a request counts as the request. During a resize, the largest of the desired, allocated and actual amounts
  counts (`counted_spec`).
* Each requested resource must be free on the node. A resource that the node does not have counts as 0.
* No other pod on the node uses the same protocol and host port on the same IP. 0.0.0.0 matches every IP.

`matches` checks node selectors and required node affinity separately. Taints are not part of these rules.
"""

from pinnace.fit.requests import HostPort, Requests, pod_requests
from pinnace.fit.room import Predicate, Refusal, Room, allocatable, check, insists, matches

__all__ = [
    "HostPort",
    "Predicate",
    "Refusal",
    "Requests",
    "Room",
    "allocatable",
    "check",
    "insists",
    "matches",
    "pod_requests",
]
