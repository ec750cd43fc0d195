"""The strategies of all resources: a file for each kind, with all that is particular to it (`apiserver.registry.strategy`).

What several of them share:

    pod_defaults.py         what a pod, or a template of pods, that does not say gets
    default_tolerations.py  how long a pod stays on a node that is gone, unless it says so itself
    templates.py            what was worked out for a spec once holds for every equal one
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.registry.strategies.csinodes import CSINodeStrategy
from apiserver.registry.strategies.deployments import DeploymentStrategy
from apiserver.registry.strategies.endpointslices import EndpointSliceStrategy
from apiserver.registry.strategies.events import EventStrategy
from apiserver.registry.strategies.jobs import JobStrategy
from apiserver.registry.strategies.leases import LeaseStrategy
from apiserver.registry.strategies.limitranges import LimitRangeStrategy
from apiserver.registry.strategies.namespaces import NamespaceStrategy
from apiserver.registry.strategies.nodes import NodeStrategy
from apiserver.registry.strategies.persistentvolumeclaims import PersistentVolumeClaimStrategy
from apiserver.registry.strategies.persistentvolumes import PersistentVolumeStrategy
from apiserver.registry.strategies.poddisruptionbudgets import PodDisruptionBudgetStrategy
from apiserver.registry.strategies.pods import PodStrategy
from apiserver.registry.strategies.priorityclasses import PriorityClassStrategy
from apiserver.registry.strategies.replicasets import ReplicaSetStrategy
from apiserver.registry.strategies.resourcequotas import ResourceQuotaStrategy
from apiserver.registry.strategies.rolebindings import RoleBindingStrategy
from apiserver.registry.strategies.roles import RoleStrategy
from apiserver.registry.strategies.services import ServiceStrategy
from apiserver.registry.strategies.storageclasses import StorageClassStrategy
from apiserver.registry.strategy import Strategy
from pinnace.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CSI_NODES,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    STORAGE_CLASSES,
)

_ALL: Sequence[Strategy[Any]] = (
    PodStrategy(),
    NodeStrategy(NODES),
    NamespaceStrategy(NAMESPACES),
    EventStrategy(EVENTS),
    PriorityClassStrategy(PRIORITY_CLASSES),
    LeaseStrategy(LEASES),
    PersistentVolumeStrategy(PERSISTENT_VOLUMES),
    PersistentVolumeClaimStrategy(PERSISTENT_VOLUME_CLAIMS),
    StorageClassStrategy(STORAGE_CLASSES),
    CSINodeStrategy(CSI_NODES),
    ServiceStrategy(SERVICES),
    PodDisruptionBudgetStrategy(POD_DISRUPTION_BUDGETS),
    ResourceQuotaStrategy(RESOURCE_QUOTAS),
    LimitRangeStrategy(LIMIT_RANGES),
    RoleStrategy(ROLES),
    RoleStrategy(CLUSTER_ROLES),
    RoleBindingStrategy(ROLE_BINDINGS),
    RoleBindingStrategy(CLUSTER_ROLE_BINDINGS),
    ReplicaSetStrategy(REPLICA_SETS),
    DeploymentStrategy(DEPLOYMENTS),
    JobStrategy(JOBS),
    EndpointSliceStrategy(ENDPOINT_SLICES),
)
STRATEGIES: Mapping[str, Strategy[Any]] = {strategy.resource.plural: strategy for strategy in _ALL}
"""By plural of the resource."""
