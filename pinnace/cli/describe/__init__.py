"""The texts of `describe`, as kubectl lays them out. Pure: objects and a time in, lines out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinnace.api import resources
from pinnace.api.core_v1_pb2 import Event
from pinnace.cli.describe import (
    endpointslices,
    jobs,
    limitranges,
    poddisruptionbudgets,
    replicasets,
    resourcequotas,
    rolebindings,
    roles,
)
from pinnace.cli.describe.text import Fields

DESCRIPTIONS: Mapping[str, Callable[[Any, Sequence[Event], float], Fields]] = {
    resources.RESOURCE_QUOTAS.plural: resourcequotas.describe,
    resources.LIMIT_RANGES.plural: limitranges.describe,
    resources.ROLES.plural: roles.describe,
    resources.CLUSTER_ROLES.plural: roles.describe,
    resources.ROLE_BINDINGS.plural: rolebindings.describe,
    resources.CLUSTER_ROLE_BINDINGS.plural: rolebindings.describe,
    resources.REPLICA_SETS.plural: replicasets.describe,
    resources.POD_DISRUPTION_BUDGETS.plural: poddisruptionbudgets.describe,
    resources.JOBS.plural: jobs.describe,
    resources.ENDPOINT_SLICES.plural: endpointslices.describe,
}
"""Of an object, its events, at a time: those that need to know nothing else. By plural name of the resource."""
