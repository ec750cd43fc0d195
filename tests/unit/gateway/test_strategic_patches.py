"""What clients see of strategic merge patches: results, codes and messages of kube-apiserver 1.36."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.gateway.serving import Answer, Gateway, gateway

STRATEGIC = "application/strategic-merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
UDP, TCP = {"containerPort": 53, "protocol": "UDP", "name": "udp"}, {"containerPort": 53, "protocol": "TCP", "name": "tcp"}


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        labels = {"app": "web"}
        spec = {"containers": [{"name": "c", "image": "i:1", "ports": [UDP, TCP]}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        body |= {"apiVersion": "apps/v1", "kind": "Deployment"}
        assert (await result.ask("POST", DEPLOYMENTS, body)).code == 201
        yield result


async def patch_pod_spec(served: Gateway, patch: Any) -> Answer:
    body = {"spec": {"template": {"spec": patch}}}
    return await served.ask("PATCH", f"{DEPLOYMENTS}/web?dryRun=All", body, content_type=STRATEGIC)


async def test_patch_of_a_port_changes_the_first_one_with_its_number(served: Gateway) -> None:
    """kubernetes#39188"""
    patched = await patch_pod_spec(served, {"containers": [{"name": "c", "ports": [TCP | {"name": "dns"}]}]})
    ports = patched.json["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert (patched.code, ports) == (200, [TCP | {"name": "dns"}, TCP])


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"$retainKeys": ["containers"], "nodeName": "n"}, 400, "invalid patch format of retainKeys"),
        ({"$deleteFromPrimitiveList": []}, 400, "invalid patch format of primitive list"),
        (
            {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "d", "image": "i:1"}]},
            500,
            "The order in patch list:\n[map[image:i:1 name:d]]\n doesn't match $setElementOrder list:\n[map[name:c]]\n",
        ),
        ({"$patch": "fly"}, 500, "unknown patch type: fly in map: map[$patch:fly]"),
        ({"containers": [{"image": "i:2"}]}, 500, "map: map[image:i:2] does not contain declared merge key: name"),
    ],
)
async def test_unmergeable_patch_gets_the_answer_of_kubernetes(served: Gateway, patch: Any, code: int, message: str) -> None:
    answer = await patch_pod_spec(served, patch)
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    reason = {"reason": "BadRequest"} if code == 400 else {}
    assert (answer.code, answer.json) == (code, expected | reason | {"code": code})
