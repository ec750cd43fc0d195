"""The tables of `get`: the columns of each resource, as kubectl has them. Pure: an object and a time in, cells out.

The API server uses them for clients that ask for a table. Which columns have integers, numbers or dates is set in
gateway/tables.py (`_INTEGERS`, `_NUMBERS`, `_TYPES`).
"""

from collections.abc import Mapping
from typing import Any

from pinnace.api import resources
from pinnace.printers import admission, autoscaling, cluster, networking, storage, workloads
from pinnace.printers.columns import Columns

COLUMNS: Mapping[str, Columns[Any]] = {
    resources.PODS.plural: workloads.PODS,
    resources.NODES.plural: cluster.NODES,
    resources.NAMESPACES.plural: cluster.NAMESPACES,
    resources.EVENTS.plural: cluster.EVENTS,
    resources.PRIORITY_CLASSES.plural: cluster.PRIORITY_CLASSES,
    resources.LEASES.plural: cluster.LEASES,
    resources.PERSISTENT_VOLUMES.plural: storage.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS.plural: storage.PERSISTENT_VOLUME_CLAIMS,
    resources.STORAGE_CLASSES.plural: storage.STORAGE_CLASSES,
    resources.CSI_NODES.plural: storage.CSI_NODES,
    resources.SERVICES.plural: networking.SERVICES,
    resources.POD_DISRUPTION_BUDGETS.plural: workloads.POD_DISRUPTION_BUDGETS,
    resources.RESOURCE_QUOTAS.plural: cluster.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES.plural: cluster.LIMIT_RANGES,
    resources.ROLES.plural: cluster.ROLES,
    resources.CLUSTER_ROLES.plural: cluster.ROLES,
    resources.ROLE_BINDINGS.plural: cluster.ROLE_BINDINGS,
    resources.CLUSTER_ROLE_BINDINGS.plural: cluster.ROLE_BINDINGS,
    resources.REPLICA_SETS.plural: workloads.REPLICA_SETS,
    resources.DEPLOYMENTS.plural: workloads.DEPLOYMENTS,
    resources.STATEFUL_SETS.plural: workloads.STATEFUL_SETS,
    resources.JOBS.plural: workloads.JOBS,
    resources.CRON_JOBS.plural: workloads.CRON_JOBS,
    resources.DAEMON_SETS.plural: workloads.DAEMON_SETS,
    resources.CONTROLLER_REVISIONS.plural: workloads.CONTROLLER_REVISIONS,
    resources.ENDPOINT_SLICES.plural: networking.ENDPOINT_SLICES,
    resources.API_SERVICES.plural: cluster.API_SERVICES,
    resources.ENDPOINTS.plural: networking.ENDPOINTS,
    resources.HORIZONTAL_POD_AUTOSCALERS.plural: autoscaling.HORIZONTAL_POD_AUTOSCALERS,
    resources.CONFIG_MAPS.plural: cluster.CONFIG_MAPS,
    resources.SECRETS.plural: cluster.SECRETS,
    resources.SERVICE_ACCOUNTS.plural: cluster.SERVICE_ACCOUNTS,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS.plural: admission.WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS.plural: admission.WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_ADMISSION_POLICIES.plural: admission.VALIDATING_ADMISSION_POLICIES,
    resources.VALIDATING_ADMISSION_POLICY_BINDINGS.plural: admission.BINDINGS,
    resources.MUTATING_ADMISSION_POLICIES.plural: admission.MUTATING_ADMISSION_POLICIES,
    resources.MUTATING_ADMISSION_POLICY_BINDINGS.plural: admission.BINDINGS,
    resources.IP_ADDRESSES.plural: networking.IP_ADDRESSES,
    resources.SERVICE_CIDRS.plural: networking.SERVICE_CIDRS,
    resources.INGRESSES.plural: networking.INGRESSES,
    resources.INGRESS_CLASSES.plural: networking.INGRESS_CLASSES,
    resources.NETWORK_POLICIES.plural: networking.NETWORK_POLICIES,
    resources.RUNTIME_CLASSES.plural: cluster.RUNTIME_CLASSES,
    resources.CUSTOM_RESOURCE_DEFINITIONS.plural: cluster.CUSTOM_RESOURCE_DEFINITIONS,
}
"""By plural name of the resource."""
