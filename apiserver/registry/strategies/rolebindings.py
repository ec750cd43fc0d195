"""Bindings of roles: to whom, and which role, for good.

Source: pkg/apis/rbac/validation of Kubernetes 1.36.
"""

from typing import TypeAlias

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.violations import invalid, required, unsupported
from pinnace.api import names
from pinnace.api.rbac_v1_pb2 import ClusterRoleBinding, RoleBinding, RoleRef, Subject
from pinnace.api.status import Violation

AnyBinding: TypeAlias = RoleBinding | ClusterRoleBinding

GROUP = "rbac.authorization.k8s.io"
_KINDS = ("ServiceAccount", "User", "Group")


class RoleBindingStrategy(Strategy[AnyBinding]):
    """Of both kinds: the API group of RBAC need not be written out."""

    check_name = staticmethod(names.path_segment)

    def set_defaults(self, obj: AnyBinding) -> None:
        obj.roleRef.apiGroup = obj.roleRef.apiGroup or GROUP
        for subject in obj.subjects:
            if not subject.apiGroup and subject.kind in ("User", "Group"):
                subject.apiGroup = GROUP

    def check(self, obj: AnyBinding, out: list[Violation]) -> None:
        namespaced = self.resource.namespaced
        _validate_role_ref(obj.roleRef, ("Role", "ClusterRole") if namespaced else ("ClusterRole",), out)
        for index, subject in enumerate(obj.subjects):
            _validate_subject(subject, f"subjects[{index}]", out, namespaced=namespaced)

    def check_change(self, new: AnyBinding, old: AnyBinding, out: list[Violation]) -> None:
        if new.roleRef != old.roleRef:
            shown = {field: getattr(new.roleRef, field) for field in ("apiGroup", "kind", "name")}
            out.append(invalid("roleRef", shown, "cannot change roleRef"))


def _validate_role_ref(role: RoleRef, kinds: tuple[str, ...], out: list[Violation]) -> None:
    if role.apiGroup != GROUP:
        out.append(unsupported("roleRef.apiGroup", role.apiGroup, (GROUP,)))
    if role.kind not in kinds:
        out.append(unsupported("roleRef.kind", role.kind, kinds))
    if not role.name:
        out.append(required("roleRef.name"))
    out.extend(invalid("roleRef.name", role.name, problem) for problem in names.path_segment(role.name))


def _validate_subject(subject: Subject, path: str, out: list[Violation], *, namespaced: bool) -> None:
    """In a namespace, a service account without one is of that namespace."""
    kind, name = subject.kind, subject.name
    if not name:
        out.append(required(f"{path}.name"))
    match kind:
        case "ServiceAccount":
            if name:
                out.extend(invalid(f"{path}.name", name, problem) for problem in names.dns_subdomain(name))
            if subject.apiGroup:
                out.append(unsupported(f"{path}.apiGroup", subject.apiGroup, ("",)))
            if not namespaced and not subject.namespace:
                out.append(required(f"{path}.namespace"))
        case "User" | "Group":
            if subject.apiGroup != GROUP:
                out.append(unsupported(f"{path}.apiGroup", subject.apiGroup, (GROUP,)))
        case _:
            out.append(unsupported(f"{path}.kind", kind, _KINDS))
