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


def build(shared: Shared, options: Options) -> Sequence[Controller]:
    return [
        NodeLifecycle(shared, options),
        TaintEviction(shared),
        PodGarbageCollector(shared),
        NamespaceController(shared),
        GarbageCollector(shared),
        ReplicaSetController(shared),
        DeploymentController(shared),
        JobController(shared),
        DisruptionController(shared),
        EndpointSliceController(shared),
    ]
