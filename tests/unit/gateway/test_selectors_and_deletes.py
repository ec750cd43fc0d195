"""Label selectors of lists, and the responses of deletes that take effect at once, as those of kube-apiserver 1.36."""

from datetime import UTC, datetime

import pytest

from tests.unit.gateway.serving import gateway

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("selector", "names"),
    [("rank%3E5", ["b"]), ("rank%3C5", ["a"]), ("rank+in+()", ["c"]), ("rank+notin+(),rank", ["a", "b"])],
)
async def test_label_selectors_compare_numbers_and_select_empty_values(selector: str, names: list[str]) -> None:
    async with gateway() as served:
        for name, rank in (("a", "1"), ("b", "10"), ("c", "")):
            body = {"metadata": {"name": name, "labels": {"rank": rank}}}
            assert (await served.ask("POST", CONFIG_MAPS, body)).code == 201
        result = await served.ask("GET", f"{CONFIG_MAPS}?labelSelector={selector}")
        assert [item["metadata"]["name"] for item in result.json["items"]] == names


async def test_comparison_needs_an_integer() -> None:
    async with gateway() as served:
        answer = await served.ask("GET", f"{CONFIG_MAPS}?labelSelector=rank%3Ex")
        assert answer.code == 400
        assert "for 'Gt', 'Lt' operators, the value must be an integer" in answer.json["message"]


@pytest.mark.parametrize("query", ["", "?gracePeriodSeconds=0", "?gracePeriodSeconds=30"])
async def test_delete_of_an_unbound_pod_returns_its_end(query: str) -> None:
    async with gateway() as served:
        created = (await served.ask("POST", PODS, POD)).json
        answer = await served.ask("DELETE", f"{PODS}/a{query}")
        metadata = answer.json["metadata"]
        assert (answer.code, metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (200, 0, 2)
        ended = datetime.fromisoformat(metadata["deletionTimestamp"])
        assert abs((datetime.now(UTC) - ended).total_seconds()) < 30
        assert metadata["uid"] == created["metadata"]["uid"]
        assert (await served.ask("GET", f"{PODS}/a")).code == 404


async def test_dry_run_of_a_delete_returns_the_end_of_the_pod() -> None:
    async with gateway() as served:
        await served.ask("POST", PODS, POD)
        metadata = (await served.ask("DELETE", f"{PODS}/a?dryRun=All")).json["metadata"]
        assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (0, 2)
        assert "deletionTimestamp" not in (await served.ask("GET", f"{PODS}/a")).json["metadata"]


async def test_update_that_removes_the_last_finalizer_returns_the_object_without_it() -> None:
    async with gateway() as served:
        body = {"metadata": {"name": "a", "finalizers": ["example.com/wait"]}}
        assert (await served.ask("POST", CONFIG_MAPS, body)).code == 201
        assert (await served.ask("DELETE", f"{CONFIG_MAPS}/a")).json["metadata"]["finalizers"] == ["example.com/wait"]
        patch = {"metadata": {"finalizers": None}}
        patched = await served.ask("PATCH", f"{CONFIG_MAPS}/a", patch, content_type="application/merge-patch+json")
        assert patched.code == 200 and "finalizers" not in patched.json["metadata"]
        assert (await served.ask("GET", f"{CONFIG_MAPS}/a")).code == 404
