"""Tokens that kubelets request: only for the pods on their own nodes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from pinnace.api.authentication_v1_pb2 import TokenRequest
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import PODS
from pinnace.api.tokens_pb2 import CreateTokenRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from tests.accounts import ISSUER, with_accounts
from tests.unit.auth.matrix import OTHER, OTHER_NODE, OWN, OWN_NODE, PEOPLE, Caller, serving

SETTINGS = replace(with_accounts(), disabled_plugins=frozenset({"ServiceAccount"}))


@pytest.fixture(scope="module")
async def assembly() -> AsyncIterator[Assembly]:
    """With the account `bot` in two namespaces, and a pod of it on the fleet's own node and on another one. The pod's volume
    has tokens for the API server and for `vault`."""
    async with serving(settings=SETTINGS) as served:
        for namespace in (OWN, OTHER):
            account = ServiceAccount(metadata=ObjectMeta(namespace=namespace, name="bot"))
            await _create(served, "ServiceAccounts", account)
        for namespace, name, node in ((OWN, "p", OWN_NODE), (OWN, "q", OTHER_NODE), (OTHER, "p", OTHER_NODE)):
            tokens = [{"serviceAccountToken": {"path": "t"}}, {"serviceAccountToken": {"path": "v", "audience": "vault"}}]
            spec = {
                "serviceAccountName": "bot",
                "nodeName": node,
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "t", "projected": {"sources": tokens}}],
            }
            await _create(served, "Pods", from_dict(PODS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec}))
        yield served


async def _create(assembly: Assembly, service: str, obj: Any) -> None:
    method = assembly.methods[f"/pinnace.v1.{service}/Create"]
    request: Any = method.parse(b"")
    request.object.CopyFrom(obj)
    await method.call(request, Caller(PEOPLE["admin"]))


def _uid(assembly: Assembly, namespace: str, name: str) -> str:
    entry = assembly.cacher.cache_of(PODS).get(PODS.key(namespace, name))
    assert entry is not None
    return entry.obj.metadata.uid


async def request(
    assembly: Assembly, namespace: str = OWN, *audiences: str, kind: str = "Pod", name: str = "p", uid: str | None = None
) -> TokenRequest:
    """The token that the fleet gets for a pod. Raises Rejected."""
    message = CreateTokenRequest(namespace=namespace, name="bot")
    message.object.spec.audiences.extend(audiences)
    if kind:
        bound = message.object.spec.boundObjectRef
        bound.apiVersion, bound.kind, bound.name = "v1", kind, name
        bound.uID = _uid(assembly, namespace, name) if uid is None else uid
    answer = await assembly.methods["/pinnace.v1.Tokens/Create"].call(message, Caller(PEOPLE["fleet"]))
    return TokenRequest.FromString(answer)


async def refusal(assembly: Assembly, *arguments: str, **options: str) -> str:
    with pytest.raises(Rejected) as caught:
        await request(assembly, *arguments, **options)
    return caught.value.refusal.message


async def test_fleet_gets_tokens_for_the_volumes_of_its_pods(assembly: Assembly) -> None:
    token = await request(assembly)
    assert list(token.spec.audiences) == [ISSUER] and token.status.token.count(".") == 2
    assert (await request(assembly, OWN, "vault")).status.token


async def test_fleet_gets_no_token_for_other_audiences(assembly: Assembly) -> None:
    assert (await refusal(assembly, OWN, "other")).endswith('audience "other" not found in pod spec volume')
    assert (await refusal(assembly, OWN, "vault", ISSUER)).endswith("node may only request 0 or 1 audiences")


async def test_fleet_gets_no_token_without_its_pod(assembly: Assembly) -> None:
    assert (await refusal(assembly, kind="")).endswith("node requested token not bound to a pod")
    assert (await refusal(assembly, kind="Node", name=OWN_NODE, uid="")).endswith("node requested token not bound to a pod")
    assert (await refusal(assembly, uid="")).endswith("node requested token with a pod binding without a uid")
    assert "does not match the UID in record" in await refusal(assembly, uid="other")


async def test_fleet_gets_no_token_for_the_pod_of_another_node(assembly: Assembly) -> None:
    assert (await refusal(assembly, name="q")).endswith("node requested token bound to a pod scheduled on a different node")
    assert 'cannot create resource "serviceaccounts/token"' in await refusal(assembly, OTHER)
