"""The tables of `get`: what the columns of each resource are, as kubectl has them. Pure: objects and a time in, cells out.

The API server prints with them for whoever asks for a table, and the command line what it has as objects anyway.

A file for each kind has its cells. What they share:

    columns.py     the columns of a resource, and those that every one can have around them
    ages.py        durations as kubectl prints them
    templates.py   templates of pods and selectors as cells
    volumes.py     what volumes and claims have in common
"""

from collections.abc import Mapping
from typing import Any

from pinnace.api import resources
from pinnace.printers import (
    csinodes,
    deployments,
    endpointslices,
    events,
    jobs,
    leases,
    limitranges,
    namespaces,
    nodes,
    persistentvolumeclaims,
    persistentvolumes,
    poddisruptionbudgets,
    pods,
    priorityclasses,
    replicasets,
    resourcequotas,
    rolebindings,
    roles,
    services,
    storageclasses,
)
from pinnace.printers.columns import Columns

COLUMNS: Mapping[str, Columns[Any]] = {
    resources.PODS.plural: pods.COLUMNS,
    resources.NODES.plural: nodes.COLUMNS,
    resources.NAMESPACES.plural: namespaces.COLUMNS,
    resources.EVENTS.plural: events.COLUMNS,
    resources.PRIORITY_CLASSES.plural: priorityclasses.COLUMNS,
    resources.LEASES.plural: leases.COLUMNS,
    resources.PERSISTENT_VOLUMES.plural: persistentvolumes.COLUMNS,
    resources.PERSISTENT_VOLUME_CLAIMS.plural: persistentvolumeclaims.COLUMNS,
    resources.STORAGE_CLASSES.plural: storageclasses.COLUMNS,
    resources.CSI_NODES.plural: csinodes.COLUMNS,
    resources.SERVICES.plural: services.COLUMNS,
    resources.POD_DISRUPTION_BUDGETS.plural: poddisruptionbudgets.COLUMNS,
    resources.RESOURCE_QUOTAS.plural: resourcequotas.COLUMNS,
    resources.LIMIT_RANGES.plural: limitranges.COLUMNS,
    resources.ROLES.plural: roles.COLUMNS,
    resources.CLUSTER_ROLES.plural: roles.COLUMNS,
    resources.ROLE_BINDINGS.plural: rolebindings.COLUMNS,
    resources.CLUSTER_ROLE_BINDINGS.plural: rolebindings.COLUMNS,
    resources.REPLICA_SETS.plural: replicasets.COLUMNS,
    resources.DEPLOYMENTS.plural: deployments.COLUMNS,
    resources.JOBS.plural: jobs.COLUMNS,
    resources.ENDPOINT_SLICES.plural: endpointslices.COLUMNS,
}
"""By plural name of the resource."""
