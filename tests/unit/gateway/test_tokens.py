"""TokenRequest and TokenReview through the gateway: the recorded answers of kube-apiserver 1.36, tokens of pods, discovery."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest

from pinnace.api.core_v1_pb2 import Pod, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import SERVICE_ACCOUNTS
from pinnace.gateway.http import User
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.accounts import ISSUER, with_accounts
from tests.builders import make_pod
from tests.unit.gateway.serving import Answer, Gateway, gateway

BOT = "/api/v1/namespaces/default/serviceaccounts/bot"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
TYPE = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
VARYING = ("uid", "creationTimestamp", "token", "expirationTimestamp", "time")


@asynccontextmanager
async def serving_accounts(**settings: Any) -> AsyncIterator[Gateway]:
    """A gateway of a cluster with the account `bot`."""
    async with gateway(with_accounts(**settings)) as served:
        await served.client.of(SERVICE_ACCOUNTS).create(ServiceAccount(metadata=ObjectMeta(namespace="default", name="bot")))
        yield served


async def request_token(served: Gateway, spec: dict[str, Any], account: str = BOT, **options: Any) -> Answer:
    return await served.ask("POST", f"{account}/token", TYPE | {"spec": spec}, agent="golden/1.0", **options)


async def token_of(served: Gateway, spec: dict[str, Any]) -> str:
    answer = await request_token(served, spec)
    assert answer.code == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


async def review(served: Gateway, token: str, *audiences: str) -> Any:
    spec = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    return (await served.ask("POST", REVIEWS, body)).json["status"]


def claims(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def without_varying(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "..." if key in VARYING else without_varying(item) for key, item in value.items()}
    return [without_varying(item) for item in value] if isinstance(value, list) else value


def managed(*fields: str) -> list[Any]:
    return [
        {
            "manager": "golden", "operation": "Update", "apiVersion": "authentication.k8s.io/v1", "time": "...",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {f"f:{field}": {} for field in fields}}, "subresource": "token",
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "audiences", "seconds", "fields"),
    [
        ({"audiences": ["api"], "expirationSeconds": 600}, ["api"], 600, ("audiences", "expirationSeconds")),
        ({}, [ISSUER], 3600, ("expirationSeconds",)),
    ],
    ids=["complete", "defaults"],
)
async def test_token_request_is_answered_as_by_kubernetes(
    spec: Any, audiences: list[str], seconds: int, fields: tuple[str, ...]
) -> None:
    async with serving_accounts() as served:
        answer = await request_token(served, spec)
    assert answer.code == 201 and not answer.warnings
    assert without_varying(answer.json) == TYPE | {
        "metadata": {
            "name": "bot",
            "namespace": "default",
            "uid": "...",
            "creationTimestamp": "...",
            "managedFields": managed(*fields),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
        "status": {"token": "...", "expirationTimestamp": "..."},
    }
    found = claims(answer.json["status"]["token"])
    assert found["aud"] == audiences and found["exp"] - found["iat"] == seconds
    assert found["kubernetes.io"] == {
        "namespace": "default",
        "serviceaccount": {"name": "bot", "uid": answer.json["metadata"]["uid"]},
    }


@pytest.mark.parametrize(
    ("account", "body", "code", "message", "details"),
    [
        (
            "bot",
            {"spec": {"expirationSeconds": 599}},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a '
            "duration less than 10 minutes",
            {
                "group": "authentication.k8s.io",
                "kind": "TokenRequest",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": "Invalid value: 599: may not specify a duration less than 10 minutes",
                        "field": "spec.expirationSeconds",
                    }
                ],
            },
        ),
        ("nobody", {"spec": {}}, 404, 'serviceaccounts "nobody" not found', {"name": "nobody", "kind": "serviceaccounts"}),
        (
            "bot",
            {"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "ghost"}}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
            None,
        ),
        (
            "bot",
            {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "ghost"}}},
            404,
            'pods "ghost" not found',
            {"name": "ghost", "kind": "pods"},
        ),
        (
            "bot",
            {"metadata": {"name": "other"}, "spec": {}},
            422,
            'TokenRequest.authentication.k8s.io "bot" is invalid: metadata.name: Invalid value: "other": must match the '
            "service account name if specified",
            {
                "name": "bot",
                "group": "authentication.k8s.io",
                "kind": "TokenRequest",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": 'Invalid value: "other": must match the service account name if specified',
                        "field": "metadata.name",
                    }
                ],
            },
        ),
    ],
    ids=["expiry", "nobody", "bound to a ConfigMap", "missing pod", "other name"],
)
async def test_refused_token_request_has_kubernetes_status(
    account: str, body: Any, code: int, message: str, details: Any
) -> None:
    async with serving_accounts() as served:
        target = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
        answer = await served.ask("POST", target, TYPE | body)
    assert (answer.code, answer.json["message"], answer.json.get("details")) == (code, message, details)


async def test_other_uid_is_a_conflict() -> None:
    async with serving_accounts() as served:
        own = (await served.client.of(SERVICE_ACCOUNTS).get("bot", "default")).metadata.uid
        answer = await served.ask("POST", f"{BOT}/token", TYPE | {"metadata": {"uid": "other"}, "spec": {}})
        why = f"the UID in the token request (other) does not match the UID of the service account ({own})"
        assert answer.code == 409
        assert answer.json["message"] == f'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "bot": {why}'
        assert answer.json["details"] == {"name": "bot", "group": "authentication.k8s.io", "kind": "TokenRequest"}


async def test_token_bound_to_a_pod_ends_with_it() -> None:
    async with serving_accounts() as served:
        pod = await served.client.pods.create(_pod("p", "bot"))
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod.metadata.uid}
        token = await token_of(served, {"boundObjectRef": bound})
        status = await review(served, token)
        assert status["authenticated"] and status["audiences"] == [ISSUER]
        user = status["user"]
        assert user["username"] == "system:serviceaccount:default:bot"
        assert user["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
        assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [pod.metadata.uid]
        assert user["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={claims(token)['jti']}"]
        await served.client.pods.delete("p", "default", grace=0)
        error = "[invalid bearer token, service account token has been invalidated]"
        assert await review(served, token) == {"user": {}, "error": error}


async def test_token_is_not_bound_to_the_pod_of_another_account() -> None:
    async with serving_accounts() as served:
        await served.client.pods.create(_pod("p", ""))
        answer = await request_token(served, {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})
        why = 'cannot bind token for serviceaccount "bot" to pod running with different serviceaccount name.'
        assert (answer.code, answer.json["message"]) == (400, why)


async def test_token_in_a_pod_works_for_a_year() -> None:
    async with serving_accounts() as served:
        await served.client.pods.create(_pod("p", "bot"))
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        answer = await request_token(served, {"boundObjectRef": bound, "expirationSeconds": 3607})
        found = claims(answer.json["status"]["token"])
        assert answer.json["spec"]["expirationSeconds"] == 3607
        assert found["exp"] - found["iat"] == 365 * 24 * 3600
        assert found["kubernetes.io"]["warnafter"] - found["iat"] == 3607


async def test_long_lifetime_is_shortened_with_a_warning() -> None:
    async with serving_accounts(max_seconds=7200) as served:
        answer = await request_token(served, {"expirationSeconds": 86400})
        assert answer.warnings == ["requested expiration of 86400 seconds shortened to 7200 seconds"]
        assert answer.json["spec"]["expirationSeconds"] == 7200


async def test_review_names_the_audiences_that_accept_the_token() -> None:
    async with serving_accounts() as served:
        token = await token_of(served, {"audiences": ["vault", "registry"]})
        assert (await review(served, token, "other", "vault"))["audiences"] == ["vault"]
        error = f'[invalid bearer token, token audiences ["vault" "registry"] is invalid for the target audiences ["{ISSUER}"]]'
        assert await review(served, token) == {"user": {}, "error": error}
        assert await review(served, "nonsense") == {"user": {}, "error": "invalid bearer token"}


async def test_token_needs_permission_on_the_account() -> None:
    async with serving_accounts() as served:
        answer = await request_token(served, {}, user=User("eve", ("system:authenticated",)))
        assert answer.code == 403
        why = 'User "eve" cannot create resource "serviceaccounts/token" in API group "" in the namespace "default"'
        assert why in answer.json["message"]


async def test_verifier_finds_the_keys_by_discovery() -> None:
    async with serving_accounts() as served:
        account = User("system:serviceaccount:default:bot", ("system:serviceaccounts", "system:authenticated"))
        provider = await served.ask("GET", "/.well-known/openid-configuration", user=account)
        assert provider.json["issuer"] == ISSUER and provider.json["id_token_signing_alg_values_supported"] == ["ES256"]
        keys = await served.ask("GET", "/openid/v1/jwks", user=account, accept="application/jwk-set+json")
        assert keys.content_type == "application/jwk-set+json"
        token = await token_of(served, {"audiences": ["vault"]})
        (key,) = jwt.PyJWKSet.from_json(keys.body.decode()).keys
        assert jwt.decode(token, key.key, ["ES256"], audience="vault", issuer=provider.json["issuer"])
        refused = await served.ask("GET", "/openid/v1/jwks", user=account)
        assert (refused.code, refused.json["reason"]) == (406, "NotAcceptable"), "JSON is not enough, as in Kubernetes"
        assert (await served.ask("GET", "/openid/v1/jwks", user=User("eve", ("system:authenticated",)))).code == 403


async def test_server_without_a_key_has_no_tokens() -> None:
    async with gateway() as served:
        await served.client.of(SERVICE_ACCOUNTS).create(ServiceAccount(metadata=ObjectMeta(namespace="default", name="bot")))
        assert (await request_token(served, {})).code == 405
        assert (await served.ask("GET", "/openid/v1/jwks", accept="*/*")).code == 404
        assert not (await served.client.pods.create(make_pod("p").req(cpu="1").new())).spec.volumes


def _pod(name: str, account: str) -> Pod:
    pod = make_pod(name).req(cpu="1").new()
    pod.spec.serviceAccountName = account
    return pod


SECRETS = "/api/v1/namespaces/default/secrets"


async def _secret(served: Gateway, name: str, *, until: Any) -> Any:
    """The Secret, when the condition holds."""
    async with asyncio.timeout(10):
        while not until(answer := await served.ask("GET", f"{SECRETS}/{name}")):
            await SYSTEM_CLOCK.sleep(0.02)
    return answer.json


async def test_secret_gets_a_token_that_ends_with_it() -> None:
    async with serving_accounts() as served:
        annotations = {"kubernetes.io/service-account.name": "bot"}
        body = {"metadata": {"name": "t", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
        assert (await served.ask("POST", SECRETS, {"apiVersion": "v1", "kind": "Secret"} | body)).code == 201
        secret = await _secret(served, "t", until=lambda answer: "token" in answer.json.get("data", {}))
        account = await served.client.of(SERVICE_ACCOUNTS).get("bot", "default")
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account.metadata.uid
        assert base64.b64decode(secret["data"]["namespace"]) == b"default"
        token = base64.b64decode(secret["data"]["token"]).decode()
        status = await review(served, token)
        assert status["authenticated"] and status["user"]["username"] == "system:serviceaccount:default:bot"
        assert "exp" not in claims(token) and claims(token)["iss"] == "kubernetes/serviceaccount"
        await served.client.of(SERVICE_ACCOUNTS).delete("bot", "default")
        await _secret(served, "t", until=lambda answer: answer.code == 404)
        assert "authenticated" not in await review(served, token)
