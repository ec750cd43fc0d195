"""Config maps, secrets and service accounts.

The data of a config map or secret with `immutable: true` cannot be changed. A secret of a well-known type must have the keys of
that type. Violations name the keys of a secret, and never contain its values: messages go to the audit log.

Source: pkg/apis/core/validation and pkg/registry/core/secret of Kubernetes 1.36.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from pinnace.api import names
from pinnace.api.core_v1_pb2 import ConfigMap, Secret, ServiceAccount
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import Strategy
from pinnace.apiserver.registry.validation.fields import IMMUTABLE, forbidden, invalid, required, too_long

MAX_DATA = 1 << 20
"""Bytes of all values of an object (MaxSecretSize of Kubernetes)."""
OPAQUE = "Opaque"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
"""The type of a secret with a token of a service account."""
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_IMMUTABLE_WHEN_SET = "field is immutable when `immutable` is set"
_REDACTED = "<secret contents redacted>"


class ConfigMapStrategy(Strategy[ConfigMap]):
    def check_fields(self, obj: ConfigMap, out: list[Violation]) -> None:
        _check_keys(obj.data, "data", out)
        both = (key for key in obj.data if key in obj.binaryData)
        out.extend(invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in both)
        _check_keys(obj.binaryData, "binaryData", out)
        if sum(len(value.encode()) for value in obj.data.values()) + _total_size(obj.binaryData.values()) > MAX_DATA:
            out.append(too_long("[]", MAX_DATA))  # Kubernetes names no field

    def check_change(self, new: ConfigMap, old: ConfigMap, out: list[Violation]) -> None:
        if not old.immutable:
            return
        if not new.immutable:
            out.append(forbidden("immutable", _IMMUTABLE_WHEN_SET))
        if new.data != old.data:
            out.append(forbidden("data", _IMMUTABLE_WHEN_SET))
        if new.binaryData != old.binaryData:
            out.append(forbidden("binaryData", _IMMUTABLE_WHEN_SET))


class SecretStrategy(Strategy[Secret]):
    def set_defaults(self, obj: Secret) -> None:
        for key, value in obj.stringData.items():
            obj.data[key] = value.encode()
        obj.ClearField("stringData")
        if not obj.type:
            obj.type = OPAQUE

    def prepare_update(self, obj: Secret, old: Secret) -> None:
        if not obj.type:
            obj.type = old.type
        super().prepare_update(obj, old)

    def check_fields(self, obj: Secret, out: list[Violation]) -> None:
        _check_keys(obj.data, "data", out)
        if _total_size(obj.data.values()) > MAX_DATA:
            out.append(too_long("data", MAX_DATA))
        if check_type := _SECRET_TYPE_CHECKS.get(obj.type):
            check_type(obj, out)

    def check_change(self, new: Secret, old: Secret, out: list[Violation]) -> None:
        if new.type != old.type:
            out.append(invalid("type", new.type, IMMUTABLE))
        if not old.immutable:
            return
        if not new.immutable:
            out.append(forbidden("immutable", _IMMUTABLE_WHEN_SET))
        if new.data != old.data:
            out.append(forbidden("data", _IMMUTABLE_WHEN_SET))


class ServiceAccountStrategy(Strategy[ServiceAccount]):
    """Kubernetes checks only the metadata of service accounts, too."""


def _check_keys(data: Iterable[str], path: str, out: list[Violation]) -> None:
    for key in data:
        out.extend(invalid(f"{path}[{key}]", key, problem) for problem in names.config_key(key))


def _total_size(values: Iterable[bytes]) -> int:
    return sum(map(len, values))


def _check_service_account_token(obj: Secret, out: list[Violation]) -> None:
    if not obj.metadata.annotations.get(SERVICE_ACCOUNT_NAME):
        out.append(required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]"))


def _check_basic_auth(obj: Secret, out: list[Violation]) -> None:
    if "username" not in obj.data and "password" not in obj.data:
        out.extend((required("data[username]"), required("data[password]")))


def _check_ssh_auth(obj: Secret, out: list[Violation]) -> None:
    if not obj.data.get("ssh-privatekey"):
        out.append(required("data[ssh-privatekey]"))


def _check_tls(obj: Secret, out: list[Violation]) -> None:
    out.extend(required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in obj.data)


def _require_json_object(key: str) -> Callable[[Secret, list[Violation]], None]:
    def check(obj: Secret, out: list[Violation]) -> None:
        if key not in obj.data:
            out.append(required(f"data[{key}]"))
        elif not _is_object(obj.data[key]):
            out.append(invalid(f"data[{key}]", _REDACTED, "must be a JSON object"))

    return check


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict | type(None))
    except (ValueError, RecursionError):
        return False


_SECRET_TYPE_CHECKS: Mapping[str, Callable[[Secret, list[Violation]], None]] = {
    SERVICE_ACCOUNT_TOKEN: _check_service_account_token,
    "kubernetes.io/basic-auth": _check_basic_auth,
    "kubernetes.io/ssh-auth": _check_ssh_auth,
    "kubernetes.io/tls": _check_tls,
    "kubernetes.io/dockercfg": _require_json_object(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _require_json_object(".dockerconfigjson"),
}
"""Checks of the well-known types. Any other type is allowed, without checks."""
