"""Which objects a list or watch is about, and how much of a selector somebody may send.

A fleet names all its nodes in a field selector. Nobody else needs so many values, and each takes time to read, and two hundred
bytes for as long as a watch is open: its call has no seat any more, and one connection may have 250 of them. (Masters may do
everything, and with --insecure fleets are masters.)
"""

from typing import Any

from apiserver.auth.authentication import MASTERS, User
from apiserver.cacher.store import Selection
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import Resource
from pinnace.api.selectors import SelectorError

MAX_LENGTH = 64 << 10
"""Characters of a field selector: `pinnace apply` asks for 200 objects by name."""
MAX_WATCHED = 1000
"""Values in the selectors of a watch, of fields and of labels together."""
_HINT = "ask for fewer at once, or for all and choose among them"


def selected(resource: Resource[Any], namespace: str, options: ListOptions, user: User, *, watched: bool = False) -> Selection:
    """Raises SelectorError."""
    bounded = user.fleet is None and MASTERS not in user.groups
    if bounded and (length := len(options.fieldSelector)) > MAX_LENGTH:
        raise SelectorError(f"field selector of {length:,} characters: only fleets may send more than {MAX_LENGTH:,}", _HINT)
    selection = Selection.parse(resource, namespace, options.labelSelector, options.fieldSelector)
    if bounded and watched:
        values = sum(len(requirement.values) for requirement in selection.fields.requirements)
        values += sum(len(requirement.values or ()) for requirement in selection.labels.requirements)
        if values > MAX_WATCHED:
            raise SelectorError(f"selectors of {values:,} values: only fleets may watch more than {MAX_WATCHED:,}", _HINT)
    return selection
