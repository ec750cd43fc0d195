"""The managedFields of objects that are not stored, such as a TokenRequest: one entry for the program that sent them."""

from collections.abc import Mapping
from typing import Any

from pinnace.api.scalars import format_rfc3339, to_time


def managed_fields(
    manager: str, api_version: str, fields: Mapping[str, Any], now: float, subresource: str = ""
) -> list[dict[str, Any]]:
    """Return the entries for the fields that a client has sent, in the form of JSON. `now`: Unix time. Without fields or
    manager there are none."""
    if not fields or not manager:
        return []
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": api_version,
        "time": format_rfc3339(to_time(int(now))),
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields_v1_of(fields),
    }
    return [entry | ({"subresource": subresource} if subresource else {})]


def _fields_v1_of(value: Any) -> dict[str, Any]:
    """Return the set of the fields of a value. Lists are atomic in these kinds."""
    return {f"f:{name}": _fields_v1_of(item) for name, item in value.items()} if isinstance(value, Mapping) else {}
