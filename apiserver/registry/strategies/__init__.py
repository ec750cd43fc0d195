"""The strategies of all resources: what is special about each kind (`apiserver.registry.strategy`)."""

from collections.abc import Mapping
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
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    STORAGE_CLASSES,
)

STRATEGIES: Mapping[str, Strategy[Any]] = {
    PODS.plural: PodStrategy(),
    NODES.plural: NodeStrategy(),
    NAMESPACES.plural: NamespaceStrategy(),
    EVENTS.plural: EventStrategy(),
    PRIORITY_CLASSES.plural: PriorityClassStrategy(),
    LEASES.plural: LeaseStrategy(),
    PERSISTENT_VOLUMES.plural: PersistentVolumeStrategy(),
    PERSISTENT_VOLUME_CLAIMS.plural: PersistentVolumeClaimStrategy(),
    STORAGE_CLASSES.plural: StorageClassStrategy(),
    CSI_NODES.plural: CSINodeStrategy(),
    SERVICES.plural: ServiceStrategy(),
    POD_DISRUPTION_BUDGETS.plural: PodDisruptionBudgetStrategy(),
    RESOURCE_QUOTAS.plural: ResourceQuotaStrategy(),
    LIMIT_RANGES.plural: LimitRangeStrategy(),
    ROLES.plural: RoleStrategy(),
    CLUSTER_ROLES.plural: RoleStrategy(),
    ROLE_BINDINGS.plural: RoleBindingStrategy(),
    CLUSTER_ROLE_BINDINGS.plural: RoleBindingStrategy(),
    REPLICA_SETS.plural: ReplicaSetStrategy(),
    DEPLOYMENTS.plural: DeploymentStrategy(),
    JOBS.plural: JobStrategy(),
    ENDPOINT_SLICES.plural: EndpointSliceStrategy(),
}
"""By plural of the resource."""
