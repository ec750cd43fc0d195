"""The strategies of all resources, by kind: defaults, validation and immutable fields (see
`pinnace.apiserver.registry.strategy`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.resources import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    CSI_NODES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    INGRESS_CLASSES,
    INGRESSES,
    IP_ADDRESSES,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    RUNTIME_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_CIDRS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from pinnace.apiserver.registry.strategies.admissionregistration import (
    MutatingAdmissionPolicyStrategy,
    PolicyBindingStrategy,
    ValidatingAdmissionPolicyStrategy,
    WebhookConfigurationStrategy,
)
from pinnace.apiserver.registry.strategies.autoscaling import HorizontalPodAutoscalerStrategy
from pinnace.apiserver.registry.strategies.cluster import (
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    RuntimeClassStrategy,
)
from pinnace.apiserver.registry.strategies.configuration import ConfigMapStrategy, SecretStrategy, ServiceAccountStrategy
from pinnace.apiserver.registry.strategies.cronjobs import CronJobStrategy
from pinnace.apiserver.registry.strategies.daemonsets import DaemonSetStrategy
from pinnace.apiserver.registry.strategies.definitions import DefinitionStrategy
from pinnace.apiserver.registry.strategies.endpoints import EndpointsStrategy
from pinnace.apiserver.registry.strategies.networking import IngressClassStrategy, IngressStrategy, NetworkPolicyStrategy
from pinnace.apiserver.registry.strategies.pods import PodStrategy
from pinnace.apiserver.registry.strategies.policy import (
    LimitRangeStrategy,
    PodDisruptionBudgetStrategy,
    PriorityClassStrategy,
    ResourceQuotaStrategy,
)
from pinnace.apiserver.registry.strategies.rbac import RoleBindingStrategy, RoleStrategy
from pinnace.apiserver.registry.strategies.registration import APIServiceStrategy
from pinnace.apiserver.registry.strategies.services import (
    EndpointSliceStrategy,
    IPAddressStrategy,
    ServiceCIDRStrategy,
    ServiceStrategy,
)
from pinnace.apiserver.registry.strategies.statefulsets import ControllerRevisionStrategy, StatefulSetStrategy
from pinnace.apiserver.registry.strategies.storage import (
    CSINodeStrategy,
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    StorageClassStrategy,
)
from pinnace.apiserver.registry.strategies.workloads import DeploymentStrategy, JobStrategy, ReplicaSetStrategy
from pinnace.apiserver.registry.strategy import Strategy

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
    StatefulSetStrategy(STATEFUL_SETS),
    JobStrategy(JOBS),
    ControllerRevisionStrategy(CONTROLLER_REVISIONS),
    CronJobStrategy(CRON_JOBS),
    DaemonSetStrategy(DAEMON_SETS),
    EndpointSliceStrategy(ENDPOINT_SLICES),
    EndpointsStrategy(ENDPOINTS),
    HorizontalPodAutoscalerStrategy(HORIZONTAL_POD_AUTOSCALERS),
    APIServiceStrategy(API_SERVICES),
    ConfigMapStrategy(CONFIG_MAPS),
    SecretStrategy(SECRETS),
    ServiceAccountStrategy(SERVICE_ACCOUNTS),
    IPAddressStrategy(IP_ADDRESSES),
    ServiceCIDRStrategy(SERVICE_CIDRS),
    WebhookConfigurationStrategy(MUTATING_WEBHOOK_CONFIGURATIONS),
    WebhookConfigurationStrategy(VALIDATING_WEBHOOK_CONFIGURATIONS),
    ValidatingAdmissionPolicyStrategy(VALIDATING_ADMISSION_POLICIES),
    PolicyBindingStrategy(VALIDATING_ADMISSION_POLICY_BINDINGS),
    MutatingAdmissionPolicyStrategy(MUTATING_ADMISSION_POLICIES),
    PolicyBindingStrategy(MUTATING_ADMISSION_POLICY_BINDINGS),
    IngressStrategy(INGRESSES),
    IngressClassStrategy(INGRESS_CLASSES),
    NetworkPolicyStrategy(NETWORK_POLICIES),
    RuntimeClassStrategy(RUNTIME_CLASSES),
    DefinitionStrategy(CUSTOM_RESOURCE_DEFINITIONS),
)
STRATEGIES: Mapping[str, Strategy[Any]] = {strategy.resource.plural: strategy for strategy in _ALL}
"""Strategies by the plural name of the resource."""
