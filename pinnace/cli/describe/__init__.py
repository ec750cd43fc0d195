"""The texts of `describe`, as kubectl lays them out. Pure, but for `gathering`: objects and a time in, lines out.

A file for each kind has its text. What they share:

    gathering.py    what is known of objects elsewhere, asked for once; what the caller may not see is told in its place
    generic.py      kinds without a text of their own
    common.py       head, owner, annotations, events
    containers.py   containers, of a pod or a template; templates.py: the template itself; volumes.py: where data come from
    text.py         labels and values, aligned
"""

from collections.abc import Callable, Mapping

from pinnace.api import resources
from pinnace.cli.describe import (
    deployments,
    endpointslices,
    jobs,
    limitranges,
    namespaces,
    nodes,
    persistentvolumeclaims,
    persistentvolumes,
    poddisruptionbudgets,
    pods,
    replicasets,
    resourcequotas,
    rolebindings,
    roles,
    services,
    storageclasses,
)
from pinnace.cli.describe.text import Fields

DESCRIPTIONS: Mapping[str, Callable[..., Fields]] = {
    resources.PODS.plural: pods.describe,
    resources.NODES.plural: nodes.describe,
    resources.DEPLOYMENTS.plural: deployments.describe,
    resources.NAMESPACES.plural: namespaces.describe,
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
    resources.SERVICES.plural: services.describe,
    resources.PERSISTENT_VOLUMES.plural: persistentvolumes.describe,
    resources.PERSISTENT_VOLUME_CLAIMS.plural: persistentvolumeclaims.describe,
    resources.STORAGE_CLASSES.plural: storageclasses.describe,
}
"""Of an object, but for its events; `gathering` knows what else some take. By plural name of the resource."""
