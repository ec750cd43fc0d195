"""Environment variables of a container: names, and where values come from."""

from collections.abc import Sequence

from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import invalid, required, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import ConfigMapKeySelector, EnvFromSource, EnvVar, EnvVarSource, SecretKeySelector
from pinnace.api.status import Violation
from pinnace.api.unmodelled import says_more

_POD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_MAPS = ("metadata.annotations['", "metadata.labels['")
_AMOUNTS = tuple(f"{kind}.{resource}" for kind in ("limits", "requests") for resource in ("cpu", "ephemeral-storage", "memory"))
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")


def validate_env(variables: Sequence[EnvVar], path: str, out: list[Violation]) -> None:
    for index, variable in enumerate(variables):
        name = variable.name
        if not name:
            out.append(required(f"{path}[{index}].name"))
        elif problems := names.env_name(name):
            out.extend(invalid(f"{path}[{index}].name", name, problem) for problem in problems)
        validate_no_null(variable.value, f"{path}[{index}].value", out)
        if variable.HasField("valueFrom"):
            _validate_source(variable.valueFrom, variable.value, f"{path}[{index}].valueFrom", out)


def validate_env_from(sources: Sequence[EnvFromSource], path: str, out: list[Violation]) -> None:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        if source.prefix:
            out.extend(invalid(f"{where}.prefix", source.prefix, problem) for problem in names.env_name(source.prefix))
        given = [field for field in ("configMapRef", "secretRef") if source.HasField(field)]
        for field in given:
            _validate_name(getattr(source, field).localObjectReference.name, f"{where}.{field}.name", out)
        if len(given) > 1:
            out.append(invalid(where, "", "may not have more than one field specified at a time"))
        elif not given and not says_more(source):
            out.append(invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))


def _validate_source(source: EnvVarSource, value: str, path: str, out: list[Violation]) -> None:
    given = [field.name for field, _ in source.ListFields()]
    if "fieldRef" in given:
        _validate_field(source.fieldRef.fieldPath, f"{path}.fieldRef.fieldPath", out)
    if "resourceFieldRef" in given:
        _validate_amount(source.resourceFieldRef.resource, f"{path}.resourceFieldRef.resource", out)
    if "configMapKeyRef" in given:
        _validate_key(source.configMapKeyRef, f"{path}.configMapKeyRef", out)
    if "secretKeyRef" in given:
        _validate_key(source.secretKeyRef, f"{path}.secretKeyRef", out)
    if not given and not says_more(source):
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        out.append(invalid(path, "", detail))
    elif value:
        out.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        out.append(invalid(path, "", "may not have more than one field specified at a time"))


def _validate_field(field: str, path: str, out: list[Violation]) -> None:
    if not field:
        out.append(required(path))
    elif field.startswith(_MAPS) and field.endswith("']"):
        key = field.partition("['")[2].removesuffix("']")
        lowered = key.lower() if field.startswith(_MAPS[0]) else key
        out.extend(invalid(path, key, problem) for problem in names.label_key(lowered))
    elif field not in _POD_FIELDS:
        out.append(unsupported(path, field, _POD_FIELDS))


def _validate_amount(resource: str, path: str, out: list[Violation]) -> None:
    if not resource:
        out.append(required(path))
    elif resource not in _AMOUNTS and not resource.startswith(_HUGE_PAGES):
        out.append(unsupported(path, resource, _AMOUNTS))


def _validate_key(selector: ConfigMapKeySelector | SecretKeySelector, path: str, out: list[Violation]) -> None:
    _validate_name(selector.localObjectReference.name, f"{path}.name", out)
    if not selector.key:
        out.append(required(f"{path}.key"))
    else:
        out.extend(invalid(f"{path}.key", selector.key, problem) for problem in names.config_key(selector.key))


def _validate_name(name: str, path: str, out: list[Violation]) -> None:
    if not name:
        out.append(required(path))
    else:
        out.extend(invalid(path, name, problem) for problem in names.dns_subdomain(name))
