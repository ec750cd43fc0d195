"""Does a pod fit a node? The one answer, for all who ask: scheduler, kubelet admission, checkers.

Two versions that disagree loop for ever: one places a pod, the other refuses it (nomad#13017). So there is one set of rules,
in two forms that are proven equal (tests/unit/fit/test_agreement.py):

* scalar, one pod and one node: `check(pod, node, pods_on_node)`, or a `Room` that is kept up to date;
* table, one pod and all nodes at once, over NumPy columns: `pinnace.fit.table`.

The rules are those of Kubernetes' NodeResourcesFit and NodePorts:

* What a pod asks for (`pod_requests`): the sum over its containers and sidecars, or the largest init container with the
  sidecars that started before it, whichever is more; plus overhead; plus one of the resource "pods". A limit without a
  request is a request. While a pod is resized, the largest of the desired, the allocated and the actual amounts count
  (`counted_spec`).
* Every resource that it asks for must be free on the node; a resource that the node does not have has nothing free.
* No other pod of the node has the same (protocol, host port) on the same IP; 0.0.0.0 is every IP.

Which labels a pod insists on (`matches`) is asked apart from that, and taints are no matter of fit.
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
