"""Decide whether a pod fits a node. The scheduler, kubelet.pod_admission and the checkers all use this package.

If the scheduler and the kubelet apply different rules, the scheduler places a pod that the kubelet rejects, in an endless loop
(nomad#13017). The rules therefore exist once, in two forms. tests/unit/fit/test_agreement.py proves the forms equal:

* Scalar, for one pod and one node: `check_fit(pod, node, pods_on_node)`, or a `NodeCapacity` that the caller keeps up to date.
* Table, for one pod and all nodes, over NumPy columns: `pinnace.fit.table`.

The rules are those of Kubernetes' NodeResourcesFit and NodePorts plugins:

* The requests of a pod (`pod_requests`) are the larger of two amounts: the sum over its containers and sidecars, and the
  largest init container plus the sidecars that start before it. Overhead and one unit of the resource "pods" are added. A
  limit without a request counts as the request. During a resize, the largest of the desired, allocated and actual amounts
  counts (`counted_spec`).
* Each requested resource must be free on the node. A resource that the node does not have counts as 0.
* No other pod on the node uses the same protocol and host port on the same IP. 0.0.0.0 matches every IP.

`matches_node` checks node selectors and required node affinity separately. Taints are not part of these rules.
"""

from pinnace.fit.requests import HostPort, Requests, pod_requests
from pinnace.fit.room import (
    AdmissionPredicate,
    FitRefusal,
    NodeCapacity,
    allocatable_amounts,
    check_fit,
    has_node_requirements,
    matches_node,
)

__all__ = [
    "AdmissionPredicate",
    "FitRefusal",
    "HostPort",
    "NodeCapacity",
    "Requests",
    "allocatable_amounts",
    "check_fit",
    "has_node_requirements",
    "matches_node",
    "pod_requests",
]
