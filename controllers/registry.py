"""Which controllers there are: a new one is a line here."""

from collections.abc import Sequence

from controllers.budgets.controller import DisruptionController
from controllers.controller import Controller, Shared
from controllers.deployments.controller import DeploymentController
from controllers.endpointslices.controller import EndpointSliceController
from controllers.garbage.collector import GarbageCollector
from controllers.jobs.controller import JobController
from controllers.namespaces import NamespaceController
from controllers.nodelifecycle.eviction import TaintEviction
from controllers.nodelifecycle.lifecycle import NodeLifecycle, Options
from controllers.podgc import PodGarbageCollector
from controllers.replicasets.controller import ReplicaSetController
from controllers.schedulernames import SchedulerNameController


def build(shared: Shared, options: Options) -> Sequence[Controller]:
    """Those that report events do it under the names of Kubernetes' (their EventSource components)."""
    return [
        NodeLifecycle(shared.reporting("node-controller"), options),
        TaintEviction(shared.reporting("taint-eviction-controller")),
        PodGarbageCollector(shared),
        NamespaceController(shared),
        GarbageCollector(shared.reporting("garbage-collector-controller")),
        ReplicaSetController(shared.reporting("replicaset-controller")),
        DeploymentController(shared.reporting("deployment-controller")),
        JobController(shared.reporting("job-controller")),
        DisruptionController(shared),
        EndpointSliceController(shared),
        SchedulerNameController(shared.reporting("scheduler-name-controller")),
    ]
