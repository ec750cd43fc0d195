"""Descriptions of config maps, secrets and service accounts. For secrets, only the sizes of the values are shown.

Source: kubectl, pkg/describe: ConfigMapDescriber, SecretDescriber, ServiceAccountDescriber.
"""

from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import ConfigMap, Secret, ServiceAccount
from pinnace.cli.describe.text import Fields, Value, head


def describe_config_map(config_map: ConfigMap) -> Fields:
    """Split text values into lines."""
    texts: dict[str, Value] = {key: config_map.data[key].splitlines() for key in sorted(config_map.data)}
    return {**head(config_map.metadata), **_immutable(config_map), "Data": texts, "BinaryData": _sizes(config_map.binaryData)}


def describe_secret(secret: Secret) -> Fields:
    return {**head(secret.metadata), "Type": secret.type, **_immutable(secret), "Data": _sizes(secret.data)}


def describe_service_account(account: ServiceAccount) -> Fields:
    fields: dict[str, Value] = head(account.metadata)
    fields["Image pull secrets"] = [each.name for each in account.imagePullSecrets]
    fields["Mountable secrets"] = [each.name for each in account.secrets]
    return fields


def _immutable(obj: ConfigMap | Secret) -> dict[str, Value]:
    return {"Immutable": "true"} if obj.immutable else {}


def _sizes(data: Mapping[str, bytes]) -> dict[str, Value]:
    return {key: f"{len(data[key])} bytes" for key in sorted(data)}
