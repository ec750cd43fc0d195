"""Labels, annotations and taints that mean something to more than one part."""

FENCE_ANNOTATION = "pinnace.io/fence"
"""On a bound pod: "<election>/<token>" of the leader that bound it."""
FLEET_LABEL = "pinnace.io/fleet"
"""On a node: the kubelet fleet that plays it."""
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
"""On a node that has not reported Ready yet."""
