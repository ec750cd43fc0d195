"""Tolerations and the taints that they match."""

import pytest

from pinnace.api.core_v1_pb2 import Toleration
from pinnace.api.pods import tolerates


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="gpu", value="true"), True),
        (Toleration(key="gpu", value="true", effect="NoSchedule", operator="Equal"), True),
        (Toleration(key="gpu", value="true", effect="NoExecute"), False),
        (Toleration(key="gpu", value="false"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="other", value="true"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", value="true", operator="Gt"), False),
    ],
)
def test_which_tolerations_match(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, "gpu", "true", "NoSchedule") is expected


def test_toleration_without_a_value_matches_an_empty_value() -> None:
    assert tolerates(Toleration(key="gpu"), "gpu", "", "NoExecute")
