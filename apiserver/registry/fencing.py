"""Fences: what is written in a leader's name commits only while it leads.

A fence becomes a guard on the election's key, in the very transaction of the write: etcd compares, so that it is right whatever
leader or server believes. A bind carries its fence in the request; any other unary call may carry one in its metadata
(pinnace.api.fences), which then holds for all that the call writes through a Mutator. Who sends none is not fenced.
"""

from collections.abc import Iterable
from contextvars import ContextVar

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.storage.interface import Guard
from pinnace.api import fences
from pinnace.api.names import dns_subdomain
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import election_key

CALL: ContextVar[tuple[Guard, ...]] = ContextVar("fence", default=())
"""What must hold for the writes of the present call."""
MOST = 4
"""Fences of a call: each is an operation of its transaction, in which others have their writes, too."""


def guards(fence: Fence | None) -> tuple[Guard, ...]:
    """What must hold in etcd for a write under this fence to commit. Raises Rejected when there can be no such fence."""
    if fence is None:
        return ()
    if dns_subdomain(fence.election) or fence.token <= 0:
        raise Rejected(errors.bad_request("a fence needs the name of an election, which is a DNS name, and its token"))
    return (Guard(election_key(fence.election), fence.token),)


def enter(metadata: Iterable[tuple[str, str | bytes]]) -> None:
    """Notes under which fences the call is made whose metadata this is: all of them must hold. Raises Rejected."""
    found: tuple[Guard, ...] = ()
    for key, value in metadata:
        if key == fences.KEY:
            if len(found) == MOST:
                raise Rejected(errors.bad_request(f"more than {MOST} fences: who leads so many elections?"))
            try:
                found += guards(fences.parse(str(value)))
            except ValueError as error:
                raise Rejected(errors.bad_request(str(error))) from None
    CALL.set(found)
