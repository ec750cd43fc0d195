"""Whom a quota may have refused: they are looked at when it grants more, and not only when their back-off ends.

(Kubernetes' controllers wait for the back-off, which is 16 minutes in the end.)
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from controllers.controller import Keys
from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.quantity import amounts
from pinnace.api.resources import Object, store_key
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.index import Index
from pinnace.client.informer import Delta

T = TypeVar("T", bound=Object)


def those_that_lack(neighbours: Index[T], lacks: Callable[[T], bool]) -> Keys[ResourceQuota]:
    """A Watch's `keys`: the objects of the quota's namespace that lack something. `neighbours`: by namespace."""

    def keys(delta: Delta[ResourceQuota]) -> Iterable[str]:
        if not grants_more(delta):
            return ()
        return [store_key(each) for each in neighbours.under(delta.obj.metadata.namespace).values() if lacks(each)]

    return keys


def grants_more(delta: Delta[ResourceQuota]) -> bool:
    """Has it gone, or a bound of it, or does one lie higher? What others have given back does not count: in a busy namespace
    that would be all the time."""
    if delta.kind == DELETED or delta.old is None:
        return delta.kind == DELETED
    before, after = delta.old.spec, delta.obj.spec
    if before == after:
        return False
    if before.scopes != after.scopes or before.scopeSelector != after.scopeSelector:
        return True
    bounds = amounts(after.hard)
    return any(name not in bounds or bounds[name] > bound for name, bound in amounts(before.hard).items())
