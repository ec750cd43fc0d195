"""Cells and columns of the tables of the gateway."""

from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.core_v1_pb2 import Secret
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, SECRETS
from pinnace.gateway import api_resources
from pinnace.gateway.tables import render_table
from tests.builders import make_pod


@pytest.mark.parametrize(
    ("resource", "obj", "cells", "types"),
    [
        (PODS, make_pod("123").build(), ["123", "0/0", "Pending", "0"], ["string"] * 4),
        (REPLICA_SETS, ReplicaSet(metadata={"name": "7"}), ["7", 0, 0, 0], ["string", "integer", "integer", "integer"]),
        (SECRETS, Secret(metadata={"name": "a"}, type="1"), ["a", "1", 0], ["string"] * 3),
        (
            POD_DISRUPTION_BUDGETS,
            PodDisruptionBudget(metadata={"name": "a"}, spec={"minAvailable": {"intVal": 2}}),
            ["a", "2", "N/A", 0],
            ["string", "string", "string", "integer"],
        ),
    ],
    ids=["pods", "replicasets", "secrets", "poddisruptionbudgets"],
)
def test_only_numeric_columns_have_numbers(resource: Any, obj: Any, cells: list[Any], types: list[str]) -> None:
    """A name, a type or a count that Kubernetes serves as text stays text, even if it consists of digits."""
    result = render_table(api_resources.api_resource_of(resource), [obj], {}, 0.0, version="v1", include="None")
    assert result["rows"][0]["cells"][: len(cells)] == cells
    assert [column["type"] for column in result["columnDefinitions"]][: len(types)] == types
