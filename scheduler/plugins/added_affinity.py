"""`addedAffinity` of NodeAffinity's args: a node affinity that every pod of the profile has, beside its own."""

from collections.abc import Mapping
from typing import Any

from pinnace.api import names
from pinnace.api.codec import CodecError, from_dict
from pinnace.api.core_v1_pb2 import NodeAffinity, NodeSelectorTerm
from pinnace.api.naturals import integer
from scheduler.plugins.arguments import check_names, label_key

FIELD = "addedAffinity"
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def added_affinity(args: Mapping[str, Any]) -> NodeAffinity:
    """Empty when there is none. Raises ValueError."""
    check_names(args, (FIELD,))
    try:
        added = from_dict(NodeAffinity, args.get(FIELD) or {}, (FIELD,))
    except CodecError as error:
        raise ValueError(str(error)) from None
    if added.HasField(_REQUIRED):
        terms = added.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
        if not terms:
            raise ValueError(f"{FIELD}.{_REQUIRED}.nodeSelectorTerms: expected at least one: without any, no node matches")
        for index, term in enumerate(terms):
            _check(term, f"{FIELD}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(added.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{FIELD}.{_PREFERRED}[{index}]"
        if not 1 <= preferred.weight <= 100:
            raise ValueError(f"{where}.weight: expected a whole number from 1 to 100, got {preferred.weight}")
        _check(preferred.preference, f"{where}.preference")
    return added


def _check(term: NodeSelectorTerm, path: str) -> None:
    for index, requirement in enumerate(term.matchExpressions):
        where = f"{path}.matchExpressions[{index}]"
        label_key(requirement.key, f"{where}.key")
        match requirement.operator:
            case "In" | "NotIn":
                _expect(bool(requirement.values), f"{where}.values: expected at least one")
                for number, value in enumerate(requirement.values):
                    for problem in names.label_value(value):
                        raise ValueError(f"{where}.values[{number}]: {problem}, got {value!r}")
            case "Exists" | "DoesNotExist":
                _expect(not requirement.values, f"{where}.values: expected none with {requirement.operator}")
            case "Gt" | "Lt":
                _expect(len(requirement.values) == 1, f"{where}.values: expected one with {requirement.operator}")
                (bound,) = requirement.values
                _expect(integer(bound) is not None, f"{where}.values[0]: expected a whole number, got {bound!r}")
            case other:
                raise ValueError(f"{where}.operator: expected In, NotIn, Exists, DoesNotExist, Gt or Lt, got {other!r}")
    for index, requirement in enumerate(term.matchFields):
        where = f"{path}.matchFields[{index}]"
        _expect(requirement.key == "metadata.name", f"{where}.key: expected metadata.name")
        _expect(requirement.operator in ("In", "NotIn"), f"{where}.operator: expected In or NotIn")
        _expect(len(requirement.values) == 1, f"{where}.values: expected one")


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)
