"""What a fleet counts, under kubelet's names where it has the same. Nothing is counted for each pod that simply runs."""

from prometheus_client import Counter, Gauge

NODES = Gauge("pinnace_kubelet_nodes", "Nodes that this fleet plays.")
PODS = Gauge("pinnace_kubelet_pods", "Pods that are bound to them, finished ones included.")
RUNNING = Gauge("kubelet_running_pods", "Pods of theirs that run.")
UNREPORTED = Gauge("pinnace_kubelet_unreported_pods", "Pods whose status is still to be written.")
REFUSED = Counter("kubelet_admission_rejections", "Pods that a node did not take, by reason.", ["reason"])
TRIPPED = Counter("pinnace_kubelet_pods_tripped", "Looks at a pod that ended in a bug: its fleet went on without it.")
FAILED_WRITES = Counter("pinnace_kubelet_failed_writes", "Writes that the API server refused, by gRPC code.", ["verb", "code"])
