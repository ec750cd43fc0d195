"""The sync of rules, with fake informers and a recording backend."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.resources import ENDPOINT_SLICES, NODES, SERVICES, store_key
from pinnace.client.client import Client
from pinnace.client.resource import ResourceClient
from pinnace.proxy import proxier
from pinnace.proxy.plan import NO_RULES, ServiceRules, plan_service
from pinnace.proxy.proxier import BackendError, Proxier
from tests.builders import make_node
from tests.unit.proxy.objects import make_service, make_slice


class Recorder:
    problem: str | None = None

    def __init__(self) -> None:
        self.services: dict[str, ServiceRules] = {}
        self.calls: list[set[str]] = []
        self.fails = False

    async def apply(self, changes: Mapping[str, ServiceRules]) -> None:
        if self.fails:
            raise BackendError("nft failed")
        self.calls.append(set(changes))
        self.services.update(changes)
        for key in [key for key, rules in self.services.items() if rules == NO_RULES]:
            del self.services[key]

    async def retry_failed(self) -> None: ...

    async def close(self, grace: float = 0.0) -> None: ...


class Fed(Proxier):
    """`feed` replaces the objects of the informers."""

    def __init__(self, backend: Recorder, node: str | None = None) -> None:
        nowhere = cast(Any, SimpleNamespace())
        client = SimpleNamespace(of=lambda resource: ResourceClient(nowhere, resource))
        super().__init__(cast(Client, client), backend, node)
        self.revision = 0

    def feed(self, services: Sequence[Any] = (), slices: Sequence[Any] = (), nodes: Sequence[Any] = ()) -> None:
        self.revision += 1
        result = {SERVICES: services, ENDPOINT_SLICES: slices, NODES: nodes}
        for informer in self._informers:
            objects = result[informer._client.resource]
            for obj in objects:
                obj.metadata.resourceVersion = obj.metadata.resourceVersion or "1"
            informer._failing = None
            informer._replace_store({store_key(obj): obj for obj in objects}, self.revision)


@pytest.fixture
def backend() -> Recorder:
    return Recorder()


def services() -> list[Any]:
    return [make_service(name, clusterIP=f"127.250.0.{number}") for number, name in enumerate("abc", 1)]


def slices(ip: str = "127.0.0.2", version: str = "1") -> list[Any]:
    made = [make_slice({"ip": "127.0.0.2" if name != "b" else ip}, service=name, name=name) for name in "abc"]
    made[1].metadata.resourceVersion = version
    return made


async def test_first_sync_applies_all_services_and_removes_unknown_ones(backend: Recorder) -> None:
    backend.services["default/gone"] = plan_service(make_service("gone"), [], proxier.NodeInfo())
    it = Fed(backend)
    it.feed(services(), slices())
    await it._sync_all_services()
    assert set(backend.services) == {"default/a", "default/b", "default/c"}
    assert it.synced and it.checks["rules"]() is None


async def test_change_is_planned_for_its_service_only(backend: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    it = Fed(backend)
    it.feed(services(), slices())
    await it._sync_all_services()
    planned: list[str] = []

    def plan(service: Any, *arguments: Any) -> ServiceRules:
        planned.append(service.metadata.name)
        return plan_service(service, *arguments)

    monkeypatch.setattr(proxier, "plan_service", plan)
    it.feed(services(), slices("127.0.0.3", version="2"))
    await it._sync()
    assert planned == ["b"] and backend.calls[-1] == {"default/b"}
    it.feed(services()[1:], slices("127.0.0.3", version="2"))
    await it._sync()
    assert planned == ["b"] and backend.calls[-1] == {"default/a"} and "default/a" not in backend.services


async def test_failed_sync_is_repeated_with_later_changes(backend: Recorder) -> None:
    it = Fed(backend)
    it.feed(services(), slices())
    await it._sync_all_services()
    backend.fails = True
    it.feed(services(), slices("127.0.0.3", version="2"))
    with pytest.raises(BackendError):
        await it._sync()
    backend.fails = False
    it.feed(services()[1:], slices("127.0.0.3", version="2"))
    await it._sync()
    assert backend.calls[-1] == {"default/a", "default/b"}


async def test_proxy_is_not_ready_before_the_first_sync(backend: Recorder) -> None:
    it = Fed(backend)
    assert it.checks["rules"]() and it.checks["informers"]()
    assert not it.synced and backend.calls == []


async def test_changed_zone_of_the_node_plans_all_services(backend: Recorder) -> None:
    hints = [{"ip": f"127.0.0.{number}", "hints": {"forZones": [{"name": zone}]}} for number, zone in ((2, "a"), (3, "b"))]
    hinted = [make_slice(*hints, service="a", name="a")]
    it = Fed(backend, "n1")
    node = make_node("n1").label("topology.kubernetes.io/zone", "a").build()
    it.feed(services()[:1], hinted, [node])
    await it._sync_all_services()
    (rule,) = backend.services["default/a"].rules.values()
    assert [endpoint.address for endpoint in rule.endpoints] == ["127.0.0.2"]
    moved = make_node("n1").label("topology.kubernetes.io/zone", "b").build()
    moved.metadata.resourceVersion = "9"
    it.feed(services()[:1], hinted, [moved])
    await it._sync()
    (rule,) = backend.services["default/a"].rules.values()
    assert [endpoint.address for endpoint in rule.endpoints] == ["127.0.0.3"]
