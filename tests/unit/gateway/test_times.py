"""Times in bodies: the errors of kube-apiserver 1.36."""

import pytest

from tests.unit.gateway.serving import gateway

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LAYOUT = "2006-01-02T15:04:05.000000Z07:00"


async def test_micro_time_without_six_digits_is_refused() -> None:
    async with gateway() as served:
        body = {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-01-31T12:00:00Z"}}
        answer = await served.ask("POST", LEASES, body)
        assert (answer.code, answer.json["message"]) == (
            400,
            f'Lease in version "v1" cannot be handled as a Lease: parsing time "2026-01-31T12:00:00Z" as "{LAYOUT}": cannot '
            'parse "Z" as ".000000"',
        )
        body["spec"] = {"renewTime": "2026-01-31T12:00:00.000000Z"}
        assert (await served.ask("POST", LEASES, body)).json["spec"] == body["spec"]
        patch = {"spec": {"renewTime": "2026-01-31T12:00:00.5Z"}}
        answer = await served.ask("PATCH", f"{LEASES}/a", patch, content_type="application/merge-patch+json")
        assert answer.code == 422 and 'cannot parse ".5Z" as ".000000"' in answer.json["message"]


@pytest.mark.parametrize(("time", "code"), [("2026-01-31T3:00:00Z", 404), ("2026-01-31t12:00:00Z", 400)])
async def test_time_of_a_query_is_parsed_as_by_go(time: str, code: int) -> None:
    async with gateway() as served:
        answer = await served.ask("GET", f"/api/v1/namespaces/default/pods/nobody/log?sinceTime={time}")
        assert (answer.code, "parsing time" in answer.json["message"]) == (code, code == 400)


async def test_unprintable_field_manager_is_quoted_as_by_go() -> None:
    async with gateway() as served:
        answer = await served.ask("POST", f"{LEASES}?fieldManager=%C3%A4%0Ab", {"metadata": {"name": "a"}})
        message = answer.json["details"]["causes"][0]["message"]
        assert message == 'Invalid value: "ä\\nb": invalid character U+000A (at position 2)'
