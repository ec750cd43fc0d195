"""Which container of a pod is meant, and whether there is something to show of it, or to run in. The wording is Kubernetes'.

Source: pkg/kubelet/kubelet_pods.go (validateContainerLogStatus) and pkg/registry/core/pod/strategy.go of Kubernetes
"""

from apiserver.errors import Rejected, bad_request
from pinnace.api.core_v1_pb2 import ContainerStatus, Pod
from pinnace.api.pods import ended
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION


def choose(pod: Pod, wanted: str) -> str:
    """The name of the container. Raises Rejected."""
    names = [each.name for each in (*pod.spec.initContainers, *pod.spec.containers)]
    if not wanted:
        annotated = pod.metadata.annotations.get(DEFAULT_CONTAINER_ANNOTATION, "")
        return annotated if annotated in names else pod.spec.containers[0].name
    if wanted not in names:
        raise _refused(pod, f'container "{wanted}" not found in pod "{pod.metadata.name}": there are {", ".join(names)}')
    return wanted


def readable(pod: Pod, container: str, previous: bool) -> bool:
    """Whether it is the attempt before the latest that is to be read. Raises Rejected when there is nothing to read.

    While a container waits to be started again, its previous attempt is its latest: there has been no other since."""
    what = f'container "{container}" in pod "{pod.metadata.name}"'
    status = _status(pod, container)
    before = status.lastState.HasField("terminated")
    if previous:
        if not before:
            raise _refused(pod, f"previous terminated {what} not found")
        return not status.state.HasField("waiting")
    if before or status.state.HasField("running") or status.state.HasField("terminated"):
        return False
    if ended(pod):
        why = f" ({pod.status.reason})" if pod.status.reason else ""
        raise _refused(pod, f"{what} has never run: the pod is {pod.status.phase}{why}")
    raise _refused(pod, f"{what} is waiting to start: {status.state.waiting.reason or 'ContainerCreating'}")


def executable(pod: Pod, container: str) -> None:
    """Raises Rejected when the container does not run."""
    if ended(pod):
        raise _refused(pod, f"cannot exec into a container in a completed pod; current phase is {pod.status.phase}")
    if not _status(pod, container).state.HasField("running"):
        raise _refused(pod, f'container "{container}" in pod "{pod.metadata.name}" is not running')


def _status(pod: Pod, container: str) -> ContainerStatus:
    statuses = (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    return next((each for each in statuses if each.name == container), ContainerStatus())


def _refused(pod: Pod, message: str) -> Rejected:
    hint = f"`pinnace describe pod {pod.metadata.name} -n {pod.metadata.namespace}` shows what its containers do"
    return Rejected(bad_request(message, hint))
