"""Security contexts: identities in range, profiles that say what they need."""

import re

from apiserver.registry.validation.violations import between, duplicate, invalid, required, unsupported
from pinnace.api.core_v1_pb2 import AppArmorProfile, PodSecurityContext, SeccompProfile, SecurityContext
from pinnace.api.status import Violation

MAX_ID = 2**31 - 1
MAX_SYSCTL = 253
"""Characters of a name."""
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_is_sysctl = re.compile(_SYSCTL, re.ASCII).fullmatch
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_CHANGES = ("Always", "OnRootMismatch")


def validate_security(context: SecurityContext, path: str, out: list[Violation]) -> None:
    """Of a container."""
    _validate_common(context, path, out)
    if context.privileged and context.HasField("allowPrivilegeEscalation") and not context.allowPrivilegeEscalation:
        out.append(invalid(path, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
    if context.HasField("procMount") and context.procMount not in _PROC_MOUNTS:
        out.append(unsupported(f"{path}.procMount", context.procMount, _PROC_MOUNTS))


def validate_pod_security(context: PodSecurityContext, path: str, out: list[Violation]) -> None:
    if not context.ListFields():
        return
    _validate_common(context, path, out)
    if context.HasField("fsGroup"):
        _validate_id(context.fsGroup, f"{path}.fsGroup", out)
    for index, group in enumerate(context.supplementalGroups):
        _validate_id(group, f"{path}.supplementalGroups[{index}]", out)
    if context.HasField("fsGroupChangePolicy") and context.fsGroupChangePolicy not in _GROUP_CHANGES:
        out.append(unsupported(f"{path}.fsGroupChangePolicy", context.fsGroupChangePolicy, _GROUP_CHANGES))
    seen: set[str] = set()
    for index, sysctl in enumerate(context.sysctls):
        where, name = f"{path}.sysctls[{index}].name", sysctl.name
        if not name:
            out.append(required(where))
        elif len(name) > MAX_SYSCTL or not _is_sysctl(name):
            detail = f"must have at most {MAX_SYSCTL} characters and match regex ^{_SYSCTL}$"
            out.append(invalid(where, name, detail))
        elif name in seen:
            out.append(duplicate(where, name))
        seen.add(name)


def _validate_common(context: SecurityContext | PodSecurityContext, path: str, out: list[Violation]) -> None:
    if context.HasField("runAsUser"):
        _validate_id(context.runAsUser, f"{path}.runAsUser", out)
    if context.HasField("runAsGroup"):
        _validate_id(context.runAsGroup, f"{path}.runAsGroup", out)
    if context.HasField("seccompProfile"):
        _validate_profile(context.seccompProfile, "seccomp", f"{path}.seccompProfile", out)
    if context.HasField("appArmorProfile"):
        _validate_profile(context.appArmorProfile, "AppArmor", f"{path}.appArmorProfile", out)


def _validate_id(value: int, path: str, out: list[Violation]) -> None:
    if not 0 <= value <= MAX_ID:
        out.append(invalid(path, value, between(0, MAX_ID)))


def _validate_profile(profile: SeccompProfile | AppArmorProfile, what: str, path: str, out: list[Violation]) -> None:
    if not profile.type:
        field = path.rpartition(".")[2]
        out.append(required(f"{path}.type", f"type is required when {field} is set"))
    elif profile.type not in _PROFILES:
        out.append(unsupported(f"{path}.type", profile.type, _PROFILES))
    elif profile.type == "Localhost":
        if not profile.localhostProfile:
            out.append(required(f"{path}.localhostProfile", f"must be set when {what} type is Localhost"))
    elif profile.HasField("localhostProfile"):
        detail = f"can only be set when {what} type is Localhost"
        out.append(invalid(f"{path}.localhostProfile", profile.localhostProfile, detail))
