"""Who is it that shows this certificate, or sends this token?"""

from datetime import UTC, datetime, timedelta

import pytest

from pinnace.api.status import Code
from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.auth.authentication import RequestAuthenticator, User
from pinnace.apiserver.errors import Rejected
from pinnace.pki import Authority, Subject

NOW = datetime(2026, 11, 1, tzinfo=UTC)
AUTHORITY = Authority.create("test", NOW)


class Tokens:
    def user(self, token: str) -> User | None:
        return User("eve") if token == "s3cret" else None


def shown(subject: Subject, lifetime: timedelta = timedelta(days=1)) -> bytes:
    return AUTHORITY.issue(subject, NOW, lifetime=lifetime).certificate


def at(when: datetime) -> RequestAuthenticator:
    return RequestAuthenticator(when.timestamp, Tokens())


def refusal_of(authenticator: RequestAuthenticator, pem: bytes) -> tuple[Code, str]:
    with pytest.raises(Rejected) as caught:
        authenticator.certificate(pem)
    return caught.value.refusal.code, caught.value.refusal.reason


def test_certificate_says_user_groups_and_nodes() -> None:
    pem = shown(Subject("system:node:edge", ("system:nodes",), ("edge-0..9", "gateway")))
    user = at(NOW).certificate(pem)
    assert (user.name, user.groups, user.fleet) == ("system:node:edge", ("system:nodes", AUTHENTICATED), "edge")
    assert "edge-9" in user.nodes and "gateway" in user.nodes and "edge-10" not in user.nodes


def test_node_without_its_group_is_no_fleet() -> None:
    assert at(NOW).certificate(shown(Subject("system:node:edge"))).fleet is None
    assert at(NOW).certificate(shown(Subject("edge", ("system:nodes",)))).fleet is None


def test_certificate_that_ends_while_its_connection_lives_counts_no_longer() -> None:
    clock = [NOW.timestamp()]
    authenticator = RequestAuthenticator(lambda: clock[0])
    pem = shown(Subject("eve"), timedelta(hours=1))
    assert authenticator.certificate(pem).name == "eve"
    clock[0] += 3600
    assert refusal_of(authenticator, pem) == (Code.UNAUTHENTICATED, "CertificateExpired")


@pytest.mark.parametrize(
    "pem",
    [b"", b"nonsense", shown(Subject("system:node:x", ("system:nodes",), ("no such pattern",)))],
    ids=["empty", "no certificate", "invalid node names"],  # workers of pytest-xdist must collect the same names
)
def test_certificate_without_a_user_is_refused(pem: bytes) -> None:
    assert refusal_of(at(NOW), pem) == (Code.UNAUTHENTICATED, "BadCertificate")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_token_is_its_users(scheme: str) -> None:
    """The scheme is in any case, says RFC 9110."""
    assert at(NOW).authorization(f"{scheme} s3cret").name == "eve"


@pytest.mark.parametrize("header", [None, "", "s3cret", "Basic s3cret", "Bearer", "Bearer wrong", "Bearers3cret"])
def test_invalid_token_gives_the_anonymous_user(header: str | None) -> None:
    with pytest.raises(Rejected) as caught:
        at(NOW).authorization(header)
    assert caught.value.refusal.code is Code.UNAUTHENTICATED
    assert "s3cret" not in caught.value.refusal.message


def test_where_no_tokens_are_known_none_is_taken() -> None:
    with pytest.raises(Rejected):
        RequestAuthenticator(NOW.timestamp).authorization("Bearer s3cret")
