"""Environment variables of a container: names, and where values come from."""

from collections.abc import Iterable, Sequence

from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import MAX_SHOWN, invalid, required, unsupported
from pinnace.api import names
from pinnace.api.codec import says_more
from pinnace.api.core_v1_pb2 import (
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.status import Violation

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
_CPU_UNITS = ("1m", "1")
_BYTE_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
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
        validate_field_selector(source.fieldRef, _POD_FIELDS, f"{path}.fieldRef", out)
    if "resourceFieldRef" in given:
        validate_amount_selector(source.resourceFieldRef, f"{path}.resourceFieldRef", out)
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


def validate_field_selector(selector: ObjectFieldSelector, fields: Iterable[str], path: str, out: list[Violation]) -> None:
    """Of a field of the pod, one of these or one entry of its labels or annotations."""
    field, path = selector.fieldPath, f"{path}.fieldPath"
    if not field:
        out.append(required(path))
    elif selector.apiVersion not in ("", "v1"):
        detail = f"error converting fieldPath: unsupported pod version: {selector.apiVersion[:MAX_SHOWN]}"
        out.append(invalid(path, field, detail))
    elif field.startswith(_MAPS) and field.endswith("']"):
        key = field.partition("['")[2].removesuffix("']")
        lowered = key.lower() if field.startswith(_MAPS[0]) else key
        out.extend(invalid(path, key, problem) for problem in names.label_key(lowered))
    elif field not in fields:
        out.append(unsupported(path, field, fields))


def validate_amount_selector(selector: ResourceFieldSelector, path: str, out: list[Violation]) -> None:
    """Of what a container requests or may have at most, and in which unit."""
    resource = selector.resource
    if not resource:
        out.append(required(f"{path}.resource"))
    elif resource not in _AMOUNTS and not resource.startswith(_HUGE_PAGES):
        out.append(unsupported(f"{path}.resource", resource, _AMOUNTS))
    elif selector.divisor.string:
        units = _CPU_UNITS if resource.endswith(".cpu") else _BYTE_UNITS
        if not _is_one_of(selector.divisor.string, units):
            detail = f"only divisor's values {', '.join(units)} are supported with the {resource.partition('.')[2]} resource"
            out.append(invalid(f"{path}.divisor", selector.divisor.string, detail))


def _is_one_of(text: str, units: Iterable[str]) -> bool:
    """Is it one of these units, in whatever words, or 0, which says nothing?"""
    try:
        value = parse(text)
    except QuantityError:
        return False
    return not value or value in map(parse, units)


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
