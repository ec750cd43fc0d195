"""What is bound in one namespace, or everywhere: the versions of bindings and roles that were seen there last.

Whoever administers a namespace may change its bindings as often as he likes, and each may have thousands of subjects. So every
version of a binding is read once, and what happens in one namespace is nothing to those who ask about another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from apiserver.auth.user import User
from apiserver.cacher.entry import Entry
from pinnace.api.rbac_v1_pb2 import RoleBinding, RoleRef

Look = Callable[[], Sequence[Entry[Any]]]
"""The objects of one kind that are there now, by their keys."""


class Bound(NamedTuple):
    """What one version of a binding says."""

    name: str
    """With its namespace before a slash, if it has one."""
    role: RoleRef
    users: frozenset[str]
    groups: frozenset[str]

    def subject(self, user: User) -> str | None:
        """As whom it means the user; None: it does not."""
        if user.name in self.users:
            return f'User "{user.name}"'
        group = next((group for group in user.groups if group in self.groups), None)
        return f'Group "{group}"' if group is not None else None


class Scope:
    """`seen` and `stamp` are its owner's: the versions of the caches that it knows, and which of its states it is in: what was
    worked out from it holds until that is another one."""

    def __init__(self, bindings: Look, roles: Look) -> None:
        self.seen: tuple[int, ...] = ()
        self.stamp = 0
        self._look_at_bindings = bindings
        self._look_at_roles = roles
        self._roles: Sequence[Entry[Any]] = ()
        self._bindings: Sequence[Entry[Any]] = ()
        self._bound: Sequence[Bound] = ()

    @property
    def empty(self) -> bool:
        return not self._bound

    def look(self) -> bool:
        """Takes what is there now. Is it anything else than before?"""
        bindings, roles = self._look_at_bindings(), self._look_at_roles()
        if _same(bindings, self._bindings) and _same(roles, self._roles):
            return False
        read = {entry.key: (entry, bound) for entry, bound in zip(self._bindings, self._bound, strict=True)}
        self._bound = [_read(entry, *read.get(entry.key, (None, None))) for entry in bindings]
        self._bindings, self._roles = bindings, roles
        return True

    def given(self, user: User) -> Iterator[tuple[Bound, str]]:
        """The bindings that mean the user, and as whom; of several that give the same role the first."""
        roles = set[tuple[str, str]]()
        for bound in self._bound:
            role = (bound.role.kind, bound.role.name)
            if role not in roles and (subject := bound.subject(user)) is not None:
                roles.add(role)
                yield bound, subject


def _same(entries: Sequence[Entry[Any]], others: Sequence[Entry[Any]]) -> bool:
    return len(entries) == len(others) and all(map(_is, entries, others))


def _is(entry: Entry[Any], other: Entry[Any]) -> bool:
    """The same version of the same object."""
    return entry is other


def _read(entry: Entry[Any], before: Entry[Any] | None, bound: Bound | None) -> Bound:
    """`bound`: what the version `before` says."""
    if bound is not None and entry is before:
        return bound
    binding: RoleBinding = entry.peek()
    metadata, users, groups = binding.metadata, set[str](), set[str]()
    for subject in binding.subjects:
        match subject.kind:
            case "User":
                users.add(subject.name)
            case "Group":
                groups.add(subject.name)
    role = RoleRef()
    role.CopyFrom(binding.roleRef)  # a part would keep all of the binding
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return Bound(name, role, frozenset(users), frozenset(groups))
