"""Impersonation: the resource that is checked, and the groups of the impersonated user."""

import pytest

from pinnace.api.users import Impersonation, parse_service_account

BUILDER = "system:serviceaccount:ci:builder"


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("eve", (), ("system:authenticated",)),
        ("eve", ("dev",), ("dev", "system:authenticated")),
        ("eve", ("dev", "system:authenticated"), ("dev", "system:authenticated")),
        ("eve", ("system:unauthenticated",), ("system:unauthenticated",)),
        (BUILDER, (), ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")),
        (BUILDER, ("dev",), ("dev", "system:authenticated")),
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("dev",), ("dev", "system:unauthenticated")),
    ],
)
def test_groups_of_impersonated_user(user: str, groups: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """Service accounts had no groups of their own, and anonymous users were authenticated."""
    assert Impersonation(user, groups).all_groups() == expected


def test_service_account_is_checked_by_name_in_its_namespace() -> None:
    assert (Impersonation(BUILDER).resource, *Impersonation(BUILDER).place) == ("serviceaccounts", "ci", "builder")
    assert (Impersonation("eve").resource, *Impersonation("eve").place) == ("users", "", "eve")


@pytest.mark.parametrize(
    "user",
    ["system:serviceaccount:ci", "system:serviceaccount:ci:", "system:serviceaccount:CI:a", "system:serviceaccount:a:b:c"],
)
def test_malformed_service_account_is_an_ordinary_user(user: str) -> None:
    assert parse_service_account(user) is None and Impersonation(user).resource == "users"
