"""What somebody holds: does it cover a rule that he wants to give away?

A rule of a few hundred bytes allows millions of things: each of its verbs for each of its resources in each of its groups. So
they are not gone through one by one, with a look at all rules for each. A set of rules is a number here, with a bit for each:
which of them have a verb, a group or a resource is looked up, and `&` finds those that have all three.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from apiserver.auth.rbac import ALL, is_url
from pinnace.api.rbac_v1_pb2 import PolicyRule


class Held:
    """Some rules, together."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._verbs: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._resources: dict[str, int] = {}
        self._urls: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._nameless = 0
        for position, rule in enumerate(rules):
            bit = 1 << position
            for found, values in (
                (self._verbs, rule.verbs),
                (self._groups, rule.apiGroups),
                (self._resources, rule.resources),
                (self._urls, rule.nonResourceURLs),
                (self._names, rule.resourceNames),
            ):
                for value in values:
                    found[value] = found.get(value, 0) | bit
            if not rule.resourceNames:
                self._nameless |= bit

    def cover(self, wanted: PolicyRule) -> bool:
        """Is everything that the rule allows allowed by these, too?"""
        verbs = {_of(self._verbs, verb) for verb in wanted.verbs}
        groups = {_of(self._groups, group) for group in wanted.apiGroups}
        resources = {self._of_resource(name) for name in wanted.resources}
        names = [self._names.get(name, 0) for name in set(wanted.resourceNames)]
        places = {group & resource for group, resource in product(groups, resources)}
        places |= {self._of_url(url) for url in set(wanted.nonResourceURLs)}
        return all(self._allow(verb & place, names) for verb, place in product(verbs, places))

    def _allow(self, rules: int, names: Sequence[int]) -> bool:
        """Do these rules allow it for whatever it is called, or at least for all of the names?"""
        return bool(rules & self._nameless) or (bool(names) and all(rules & name for name in names))

    def _of_resource(self, name: str) -> int:
        _, slash, subresource = name.partition("/")
        found = _of(self._resources, name)
        return found | self._resources.get(f"*/{subresource}", 0) if slash else found

    def _of_url(self, url: str) -> int:
        found = 0
        for held, rules in self._urls.items():
            if is_url(url, held):
                found |= rules
        return found


def _of(index: dict[str, int], value: str) -> int:
    return index.get(value, 0) | index.get(ALL, 0)
