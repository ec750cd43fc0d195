"""Tokens of service accounts: claims, signatures, and the objects on which they depend."""

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pinnace.api.core_v1_pb2 import Node, Pod, Secret, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Object, Resource
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.tokens import (
    LEEWAY,
    AccountClaims,
    AccountTokenAuthenticator,
    InvalidToken,
    ObjectId,
    TokenKeyFiles,
    TokenKeys,
    decode_claims,
    encode_claims,
    encode_legacy_claims,
)
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange
from tests.accounts import ISSUER, KEYS, PRIVATE, token_settings
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage

NOW = 1_000_000
BOUND = AccountClaims(
    "ns",
    ObjectId("bot", "uid-bot"),
    (ISSUER,),
    NOW,
    NOW + 3600,
    "id-1",
    pod=ObjectId("p", "uid-p"),
    node=ObjectId("n", "uid-n"),
    warn_after=NOW + 3607,
)


def claims_of(**changes: Any) -> AccountClaims:
    """Claims without a bound object."""
    return AccountClaims(**{
        "namespace": "ns", "account": ObjectId("bot", "uid-bot"), "audiences": (ISSUER,), "issued": NOW, "expires": NOW + 3600,
        "id": "id-1", **changes,
    })  # fmt: skip


def signed(claims: AccountClaims, keys: TokenKeys = KEYS) -> str:
    return keys.sign(encode_claims(claims, ISSUER))


class Cluster:
    """The objects of a cluster in a cache, and the authenticator that reads it."""

    def __init__(self) -> None:
        self.clock = FakeClock(float(NOW))
        self._cacher = Cacher(MemoryStorage())
        self._cacher.install_state(1, [])
        self._revision = 1
        self.keys = KEYS
        of = self._cacher.cache_of
        settings = token_settings()
        object.__setattr__(settings, "keys", lambda: self.keys)
        self.authenticator = AccountTokenAuthenticator(
            settings, of(SERVICE_ACCOUNTS), of(PODS), of(SECRETS), of(NODES), self.clock
        )
        self.put(SERVICE_ACCOUNTS, ServiceAccount(), "bot")

    def put(self, resource: Resource[Any], obj: Object, name: str, uid: str = "") -> None:
        namespace = "ns" if resource.namespaced else ""
        obj.metadata.MergeFrom(ObjectMeta(namespace=namespace, name=name, uid=uid or f"uid-{name}"))
        self._apply(resource, name, obj.SerializeToString())

    def delete(self, resource: Resource[Any], name: str) -> None:
        self._apply(resource, name, None)

    def _apply(self, resource: Resource[Any], name: str, value: bytes | None) -> None:
        self._revision += 1
        change = KeyChange(resource.key("ns", name), value, self._revision, self._revision)
        self._cacher.apply_changes(ChangeBatch(self._revision, [change]))

    def user(self, token: str) -> User | None:
        return self.authenticator.user(token)

    def problem(self, token: str, *audiences: str) -> str:
        with pytest.raises(InvalidToken) as caught:
            self.authenticator.review(token, audiences)
        return str(caught.value)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_claims_have_kubernetes_form() -> None:
    assert encode_claims(BOUND, ISSUER) == {
        "aud": [ISSUER],
        "exp": NOW + 3600,
        "iat": NOW,
        "iss": ISSUER,
        "jti": "id-1",
        "kubernetes.io": {
            "namespace": "ns",
            "node": {"name": "n", "uid": "uid-n"},
            "pod": {"name": "p", "uid": "uid-p"},
            "serviceaccount": {"name": "bot", "uid": "uid-bot"},
            "warnafter": NOW + 3607,
        },
        "nbf": NOW,
        "sub": "system:serviceaccount:ns:bot",
    }
    assert decode_claims(encode_claims(BOUND, ISSUER), ISSUER) == BOUND


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://other"},
        {"sub": "system:serviceaccount:ns:admin"},
        {"kubernetes.io": "ns"},
        {"kubernetes.io": {"namespace": "ns"}},
        {"kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": ["bot"]}}},
        {"exp": "tomorrow"},
        {"exp": None},
    ],
    ids=str,
)
def test_malformed_claims_are_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"token|claim"):
        decode_claims(encode_claims(BOUND, ISSUER) | change, ISSUER)


def test_user_of_a_token_has_its_groups_and_facts() -> None:
    user = BOUND.user()
    assert (user.name, user.uid) == ("system:serviceaccount:ns:bot", "uid-bot")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    prefix = "authentication.kubernetes.io/"
    assert dict(user.extra) == {
        f"{prefix}credential-id": ("JTI=id-1",),
        f"{prefix}pod-name": ("p",),
        f"{prefix}pod-uid": ("uid-p",),
        f"{prefix}node-name": ("n",),
        f"{prefix}node-uid": ("uid-n",),
    }


def test_token_of_an_account_is_valid_until_it_expires(cluster: Cluster) -> None:
    token = signed(claims_of())
    assert cluster.user(token) == claims_of().user()
    cluster.clock._now = NOW + 3600 + LEEWAY
    assert cluster.user(token) is not None
    cluster.clock._now += 1
    assert cluster.problem(token) == "service account token has expired"
    cluster.clock._now = NOW - LEEWAY - 1
    assert cluster.problem(token) == "service account token is not valid yet"


def test_token_ends_with_its_account(cluster: Cluster) -> None:
    token = signed(claims_of())
    assert cluster.user(token) is not None
    cluster.put(SERVICE_ACCOUNTS, ServiceAccount(), "bot", "uid-new")
    assert cluster.user(token) is None
    cluster.delete(SERVICE_ACCOUNTS, "bot")
    assert cluster.problem(token) == "service account token has been invalidated"


@pytest.mark.parametrize(
    ("kind", "resource", "obj"), [("pod", PODS, Pod()), ("secret", SECRETS, Secret()), ("node", NODES, Node())]
)
def test_token_ends_with_the_object_to_which_it_is_bound(cluster: Cluster, kind: str, resource: Any, obj: Any) -> None:
    token = signed(claims_of(**{kind: ObjectId("thing", "uid-thing")}))
    assert cluster.user(token) is None
    cluster.put(resource, obj, "thing")
    assert cluster.user(token) is not None
    terminating = type(obj)()
    terminating.metadata.deletionTimestamp.seconds = NOW
    cluster.put(resource, terminating, "thing")
    assert cluster.user(token) is not None, "a pod uses its token while it terminates"
    cluster.clock._now = NOW + LEEWAY + 1
    assert cluster.user(token) is None
    cluster.put(resource, type(obj)(), "thing", "uid-other")
    assert cluster.problem(token) == "service account token has been invalidated"


def test_node_of_a_pod_may_be_gone(cluster: Cluster) -> None:
    cluster.put(PODS, Pod(), "p")
    assert cluster.user(signed(BOUND)) is not None


def test_token_is_for_its_audiences(cluster: Cluster) -> None:
    token = signed(claims_of(audiences=("vault", "registry")))
    assert cluster.user(token) is None
    assert cluster.problem(token) == f'token audiences ["vault" "registry"] is invalid for the target audiences ["{ISSUER}"]'
    assert cluster.authenticator.review(token, ["other", "vault"]).audiences == ("vault",)


def test_token_of_a_secret_is_valid_as_long_as_the_secret_contains_it(cluster: Cluster) -> None:
    token = KEYS.sign(encode_legacy_claims("ns", ObjectId("bot", "uid-bot"), "s"))
    assert cluster.user(token) is None
    cluster.put(SECRETS, Secret(data={"token": token.encode()}), "s")
    user = cluster.user(token)
    assert user is not None and user.name == "system:serviceaccount:ns:bot" and not user.extra
    cluster.put(SECRETS, Secret(data={"token": b"another"}), "s")
    assert cluster.user(token) is None


def test_only_tokens_of_a_known_key_are_accepted(cluster: Cluster) -> None:
    other = TokenKeys(ec.generate_private_key(ec.SECP256R1()))
    assert cluster.user(signed(claims_of(), other)) is None
    (own,) = KEYS.verifying
    forged = jwt.encode(encode_claims(claims_of(), ISSUER), PRIVATE, "ES256", {"kid": "unknown"})
    assert cluster.user(forged) is None
    unsigned = jwt.encode(encode_claims(claims_of(), ISSUER), None, "none", {"kid": own})
    assert cluster.user(unsigned) is None
    by_secret = jwt.encode(encode_claims(claims_of(), ISSUER), "s" * 32, "HS256", {"kid": own})
    assert cluster.user(by_secret) is None, "the key determines the algorithm"


def test_changed_token_is_refused(cluster: Cluster) -> None:
    head, body, signature = signed(claims_of()).split(".")
    data = json.loads(base64.urlsafe_b64decode(body + "=="))
    data["exp"] += 1
    changed = base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")
    assert cluster.user(f"{head}.{changed}.{signature}") is None


@pytest.mark.parametrize("text", ["", "a.b.c", "..", "\x00.\ud800.é", "x" * 5000, "eyJ.".ljust(4000, "[") + ".", "e30.e30."])
def test_text_that_is_no_token_is_refused(cluster: Cluster, text: str) -> None:
    assert cluster.user(text) is None


def test_tokens_of_the_previous_key_remain_valid_after_a_rotation(cluster: Cluster) -> None:
    old = signed(claims_of())
    assert cluster.user(old) is not None
    key = ec.generate_private_key(ec.SECP256R1())
    cluster.keys = TokenKeys(key, [PRIVATE.public_key()])
    assert cluster.user(old) is not None
    assert cluster.user(signed(claims_of(), cluster.keys)) is not None
    cluster.keys = TokenKeys(key)
    assert cluster.user(old) is None, "the key is retired"


@pytest.mark.parametrize(
    ("key", "algorithm", "members"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256", {"crv", "x", "y"}),
        (rsa.generate_private_key(65537, 2048), "RS256", {"n", "e"}),
    ],
    ids=["EC", "RSA"],
)
def test_key_set_verifies_tokens(key: Any, algorithm: str, members: set[str]) -> None:
    keys = TokenKeys(key)
    (shown,) = json.loads(keys.json_web_key_set())["keys"]
    assert shown.keys() == {"use", "kid", "alg", "kty", *members} and shown["alg"] == algorithm
    token = signed(BOUND, keys)
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "kid": shown["kid"]}
    assert jwt.decode(token, jwt.PyJWK(shown).key, [algorithm], {"verify_exp": False}, audience=ISSUER)["jti"] == "id-1"


async def test_key_files_are_read_again_after_a_change(tmp_path: Path) -> None:
    first, second = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    signing, verifying = tmp_path / "sa.key", tmp_path / "sa.pub"
    signing.write_bytes(_private(first))
    verifying.write_bytes(_public(second) + _public(first))
    clock = FakeClock()
    files = TokenKeyFiles(signing, [verifying], clock)
    old = signed(BOUND, files.current())
    assert len(files.current().verifying) == 2
    (tmp_path / "new").write_bytes(_private(second))
    (tmp_path / "new").replace(signing)
    await clock.advance(1.0)
    assert jwt.get_unverified_header(signed(BOUND, files.current())) != jwt.get_unverified_header(old)
    assert files.current().verify(old)
    (tmp_path / "new").write_text("no key")
    (tmp_path / "new").replace(signing)
    before = files.current()
    await clock.advance(1.0)
    assert files.current() is before, "the previous keys remain in use"


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
