"""Lists as tables: what a server prints is what a client would."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.resources import ALL, PODS
from pinnace.api.status import Code
from pinnace.api.tables_pb2 import ListTableRequest, Table
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services import resource
from pinnace.printers import COLUMNS
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, OWN_NODE, PEOPLE, Caller, serving

NOW = 1_800_000_000.0


async def table(assembly: Assembly, person: str = "admin", **request: Any) -> Table:
    method = assembly.methods["/pinnace.v1.Tables/List"]
    return Table.FromString(await method.call(ListTableRequest(**request), Caller(PEOPLE[person])))


async def create(assembly: Assembly, name: str) -> None:
    request = CreatePodRequest(object=make_pod(name, namespace=OWN).label("app", "web").req(cpu="1").new())
    await assembly.methods["/pinnace.v1.Pods/Create"].call(request, Caller(PEOPLE["admin"]))


async def test_it_reads_as_if_the_objects_had_been_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(SYSTEM_CLOCK), "time", lambda self: NOW)
    async with serving() as assembly:
        await create(assembly, "a")
        answer = await assembly.methods["/pinnace.v1.Pods/List"].call(ListRequest(), Caller(PEOPLE["admin"]))
        pods = PodList.FromString(answer).items
        made = await table(assembly, resource="pods", includeObject=ListTableRequest.METADATA)
        columns = COLUMNS[PODS.plural]
        assert [column_definition.name for column_definition in made.columnDefinitions] == [*columns.headers, *columns.wide]
        assert [list(row.cells) for row in made.rows] == [list(columns.row(pod, NOW)) for pod in pods] and len(pods) == 3
        assert [row.object for row in made.rows] == [pod.metadata for pod in pods]


async def test_every_kind_has_columns() -> None:
    async with serving() as assembly:
        for resource in ALL:
            made = await table(assembly, resource=resource.plural)
            assert made.columnDefinitions[0].priority == 0 and {
                column_definition.type for column_definition in made.columnDefinitions
            } == {"string"}
            assert all(len(row.cells) == len(made.columnDefinitions) for row in made.rows)
            assert not any(row.HasField("object") for row in made.rows)


async def test_selectors_pages_and_the_past_are_those_of_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "MAX_BATCH", 2)
    async with serving() as assembly:
        for name in "abc":
            await create(assembly, name)
        names, options = [], ListOptions(labelSelector="app=web")
        while True:
            page = await table(assembly, resource="pods", namespace=OWN, options=options)
            names.append([row.cells[0] for row in page.rows])
            if not (token := getattr(page.metadata, "continue")):
                break
            await create(assembly, f"later-{len(names)}")
            setattr(options, "continue", token)
        assert names == [["a", "b"], ["c"]]
        past = ListOptions(labelSelector="app=web", resourceVersion=page.metadata.resourceVersion, resourceVersionMatch="Exact")
        assert len((await table(assembly, resource="pods", namespace=OWN, options=past)).rows) == 2
        with pytest.raises(Rejected, match="Too large resource version"):
            past.resourceVersion = "999999"
            await table(assembly, resource="pods", options=past)


@pytest.mark.parametrize(
    ("person", "request_", "code"),
    [
        ("viewer", {"resource": "pods", "namespace": OWN}, None),
        ("viewer", {"resource": "pods"}, Code.PERMISSION_DENIED),
        ("viewer", {"resource": "nodes", "namespace": OWN}, Code.PERMISSION_DENIED),
        ("fleet", {"resource": "pods", "options": {"fieldSelector": f"spec.nodeName={OWN_NODE}"}}, None),
        ("fleet", {"resource": "pods", "namespace": OWN}, Code.PERMISSION_DENIED),
        ("nobody", {"resource": "nothing"}, Code.PERMISSION_DENIED),
        ("admin", {"resource": "nothing"}, Code.INVALID_ARGUMENT),
        ("admin", {}, Code.INVALID_ARGUMENT),
    ],
)
async def test_it_takes_the_permission_to_list_that_resource(person: str, request_: dict[str, Any], code: Code | None) -> None:
    async with serving() as assembly:
        try:
            await table(assembly, person, **request_)
        except Rejected as rejected:
            assert rejected.refusal.code is code
        else:
            assert code is None
