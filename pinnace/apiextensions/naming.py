"""The names and conditions of definitions, as Kubernetes' controllers decide them.

    NamesAccepted                          no other definition of the group has accepted one of the names
    Established                            the API serves the kind; it stays, even if new names are not accepted
    NonStructuralSchema                    absent for valid definitions
    KubernetesAPIApprovalPolicyConformant  for groups of the community (k8s.io, kubernetes.io): the API is approved
    Terminating                            the definition is being deleted, and its objects before it

Kubernetes' controllers need several writes for this; here one status is computed at once.

Source: k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,apiapproval,finalizer} of Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from pinnace.apiextensions.definitions import approval_state, is_protected_group
from pinnace.apiextensions.schema import mapping, objects, text, texts
from pinnace.apiextensions.violations import quote

NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"
CONFORMANT = "KubernetesAPIApprovalPolicyConformant"
_SINGLE_NAMES = (("plural", "PluralConflict"), ("singular", "SingularConflict"))
_KINDS = (("kind", "KindConflict"), ("listKind", "ListKindConflict"))
_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
_APPROVAL_REASONS = {
    "approved": ("True", "ApprovedAnnotation"),
    "bypassed": ("False", "UnapprovedAnnotation"),
    "invalid": ("False", "InvalidAnnotation"),
    "missing": ("False", "MissingAnnotation"),
}

Condition = dict[str, Any]


def compute_status(crd: dict[str, Any], others: Iterable[dict[str, Any]], now: str) -> dict[str, Any] | None:
    """Return the new status of a definition; None if it stays. `others`: definitions; those of other groups, and itself, are
    ignored. `now`: RFC 3339."""
    status = deepcopy(dict(mapping(crd.get("status"))))
    spec_names = mapping(mapping(crd.get("spec")).get("names"))
    if _pick_names(spec_names) != _pick_names(mapping(status.get("acceptedNames"))) or not get_condition(crd, NAMES_ACCEPTED):
        reason, message = _accept_names(spec_names, status, _used_names(crd, others))
        accepted = reason == "NoConflicts"
        set_condition(status, _build_condition(NAMES_ACCEPTED, accepted, reason, message, now))
        if accepted and not is_established(crd):
            message = "the initial names have been accepted"
            set_condition(status, _build_condition(ESTABLISHED, True, "InitialNamesAccepted", message, now))
        elif not get_condition(crd, ESTABLISHED):
            set_condition(status, _build_condition(ESTABLISHED, False, "NotAccepted", "not all names are accepted", now))
    if is_protected_group(text(mapping(crd.get("spec")).get("group"))):
        state, message = approval_state(crd)
        value, reason = _APPROVAL_REASONS[state]
        set_condition(status, _build_condition(CONFORMANT, value == "True", reason, message, now))
    return status if status != mapping(crd.get("status")) else None


def _used_names(crd: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Return the resource names and the kinds that definitions of the group have accepted, this one included."""
    resources, kinds = set[str](), set[str]()
    name, group = mapping(crd.get("metadata")).get("name"), mapping(crd.get("spec")).get("group")
    rest = [other for other in others if mapping(other.get("metadata")).get("name") != name]
    for other in (crd, *rest):
        if mapping(other.get("spec")).get("group") != group:
            continue
        accepted = mapping(mapping(other.get("status")).get("acceptedNames"))
        resources.update((text(accepted.get("plural")), text(accepted.get("singular")), *texts(accepted.get("shortNames"))))
        kinds.update((text(accepted.get("kind")), text(accepted.get("listKind"))))
    return resources, kinds


def _accept_names(requested: Mapping[str, Any], status: dict[str, Any], used: tuple[set[str], set[str]]) -> tuple[str, str]:
    """Set the accepted names in place. Return the reason and message of the last conflict."""
    resources, kinds = used
    accepted = dict(mapping(status.get("acceptedNames")))
    reason, message = "NoConflicts", "no conflicts found"
    for fields, taken in ((_SINGLE_NAMES, resources), (_KINDS, kinds)):
        if taken is kinds:
            conflict = _accept_short_names(requested, accepted, resources)
            reason, message = ("ShortNamesConflict", conflict) if conflict else (reason, message)
        for field, conflict_reason in fields:
            name = text(requested.get(field))
            if name != text(accepted.get(field)) and name in taken:
                reason, message = conflict_reason, f"{quote(name)} is already in use"
            elif name:
                accepted[field] = name
    accepted.pop("categories", None)
    if categories := requested.get("categories"):
        accepted["categories"] = categories
    status["acceptedNames"] = accepted
    return reason, message


def _accept_short_names(requested: Mapping[str, Any], accepted: dict[str, Any], resources: set[str]) -> str:
    """Accept all short names, or return the message about conflicts."""
    names, own = texts(requested.get("shortNames")), frozenset(texts(accepted.get("shortNames")))
    conflicts = list(dict.fromkeys(f"{quote(name)} is already in use" for name in names if name in resources - own))
    if conflicts:
        return conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
    accepted.pop("shortNames", None)
    if names:
        accepted["shortNames"] = list(names)
    return ""


def _pick_names(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: names[name] for name in _NAMES if names.get(name)}


def _build_condition(kind: str, value: bool, reason: str, message: str, now: str) -> Condition:
    return {"type": kind, "status": str(value), "lastTransitionTime": now, "reason": reason, "message": message}


def get_condition(crd: Mapping[str, Any], kind: str) -> Condition | None:
    conditions = objects(mapping(crd.get("status")).get("conditions"))
    return next((dict(condition) for condition in conditions if condition.get("type") == kind), None)


def is_established(crd: Mapping[str, Any]) -> bool:
    """Return whether the API serves the kind."""
    return (get_condition(crd, ESTABLISHED) or {}).get("status") == "True"


def set_condition(status: dict[str, Any], condition: Condition) -> None:
    """Set a condition in place. lastTransitionTime changes only with the status of the condition."""
    conditions = [dict(item) for item in objects(status.get("conditions"))]
    for item in conditions:
        if item.get("type") == condition["type"]:
            since = item.get("lastTransitionTime") if item.get("status") == condition["status"] else None
            item.update(condition | {"lastTransitionTime": since or condition["lastTransitionTime"]})
            break
    else:
        conditions.append(dict(condition))
    status["conditions"] = conditions


def terminating_condition(reason: str, message: str, now: str, *, status: str = "True") -> Condition:
    return _build_condition(TERMINATING, status == "True", reason, message, now)
