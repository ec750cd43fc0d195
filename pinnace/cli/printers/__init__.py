"""The tables of `get`: what the columns of each resource are, as kubectl has them. Pure: objects and a time in, cells out."""

from collections.abc import Mapping
from typing import Any

from pinnace.api import resources
from pinnace.cli.printers import events, leases, namespaces, nodes, pods, priorityclasses
from pinnace.cli.printers.columns import Columns

COLUMNS: Mapping[str, Columns[Any]] = {
    resources.PODS.plural: pods.COLUMNS,
    resources.NODES.plural: nodes.COLUMNS,
    resources.NAMESPACES.plural: namespaces.COLUMNS,
    resources.EVENTS.plural: events.COLUMNS,
    resources.PRIORITY_CLASSES.plural: priorityclasses.COLUMNS,
    resources.LEASES.plural: leases.COLUMNS,
}
"""By plural name of the resource."""
