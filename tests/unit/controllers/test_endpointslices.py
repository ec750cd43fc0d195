"""The endpoint slices of a service."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES, Resource, store_key
from pinnace.api.scalars import STRING
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.client.informer import Delta, Index
from pinnace.controllers.endpointslice import (
    CAPACITY,
    EndpointSliceController,
    SliceChanges,
    build_endpoint,
    group_endpoints,
    plan_slice_changes,
    service_selector,
)
from pinnace.controllers.informers import LabelIndex, SelectorIndex, select_all
from tests.builders import PodBuilder, make_node, make_pod


def service(*ports: int | str, headless: bool = False) -> Service:
    made = Service(metadata=ObjectMeta(name="web", namespace="default", uid="uid-web", labels={"team": "a"}))
    made.spec.selector["app"] = "web"
    made.spec.clusterIP = "None" if headless else ""
    for target in ports or (8080,):
        port = made.spec.ports.add(name=f"port-{target}", protocol="TCP", port=80)
        if isinstance(target, str):
            port.targetPort.type, port.targetPort.strVal = STRING, target
        else:
            port.targetPort.intVal = target
    return made


def pod(number: int, *, ip: str = "", **named: int) -> Pod:
    """A ready pod at 10.0.0.`number`, with ports of these names."""
    made = make_pod(f"p{number}").label("app", "web").node("n").phase("Running").ready_since(1.0).image("app:1").build()
    made.status.podIP = ip or f"10.0.{number // 250}.{number % 250}"
    for name, port in named.items():
        made.spec.containers[0].ports.add(name=name, containerPort=port, protocol="TCP")
    return made


class World:
    """Stores slices as the controller requests."""

    def __init__(self, of: Service) -> None:
        self.service, self.slices, self.made = of, dict[str, EndpointSlice](), 0

    def sync(self, pods: list[Pod]) -> SliceChanges:
        result = plan_slice_changes(
            self.service, group_endpoints(self.service, pods, lambda node: "zone-a"), self.slices.values()
        )
        for item in result.create:
            self.made += 1
            item.metadata.name = f"web-{self.made:03d}"
        self.slices |= {item.metadata.name: item for item in (*result.create, *result.update)}
        for item in result.delete:
            del self.slices[item.metadata.name]
        again = plan_slice_changes(
            self.service, group_endpoints(self.service, pods, lambda node: "zone-a"), self.slices.values()
        )
        assert again == SliceChanges(), "the slices do not converge"
        return result

    def holds(self, *groups: Iterable[Pod]) -> None:
        """Add a slice for each group of pods."""
        for number, pods in enumerate(groups):
            [made] = World(self.service).sync(list(pods)).create
            made.metadata.name = f"old-{number}"
            self.slices[made.metadata.name] = made

    @property
    def sizes(self) -> list[int]:
        return sorted(len(slice_.endpoints) for slice_ in self.slices.values())


@pytest.mark.parametrize(
    ("builder", "conditions"),
    [
        (make_pod("p").ready_since(1.0), (True, True, False)),
        (make_pod("p"), (False, False, False)),
        (make_pod("p").ready_since(1.0).terminating(), (False, True, True)),
        (make_pod("p").terminating(), (False, False, True)),
    ],
    ids=["ready", "not ready", "ready and terminating", "terminating"],
)
def test_endpoint_conditions_follow_the_pod(builder: PodBuilder, conditions: tuple[bool, bool, bool]) -> None:
    made = build_endpoint(service(), builder.build(), "").conditions
    assert (made.ready, made.serving, made.terminating) == conditions
    impatient = service()
    impatient.spec.publishNotReadyAddresses = True
    assert build_endpoint(impatient, builder.build(), "").conditions.ready


def test_slice_has_owner_labels_and_endpoint_has_pod_node_and_zone() -> None:
    world = World(service(headless=True))
    host = pod(1)
    host.spec.hostname, host.spec.subdomain = "db-0", "web"
    world.sync([host])
    [made] = world.slices.values()
    assert dict(made.metadata.labels) == {
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "service.kubernetes.io/headless": "",
    }
    assert (made.metadata.generateName, made.metadata.ownerReferences[0].uid, made.addressType) == ("web-", "uid-web", "IPv4")
    [result] = made.endpoints
    assert (list(result.addresses), result.nodeName, result.zone, result.hostname) == (["10.0.0.1"], "n", "zone-a", "db-0")
    assert (result.targetRef.kind, result.targetRef.name, result.targetRef.uid) == ("Pod", "p1", "uid-default-p1")


def test_terminated_pods_and_pods_without_an_address_are_no_endpoints() -> None:
    ended, homeless = pod(1), pod(2)
    ended.status.phase, homeless.status.podIP = "Failed", ""
    world = World(service())
    world.sync([ended, homeless])
    assert world.sizes == [0]


def test_pods_with_different_port_numbers_have_separate_slices() -> None:
    world = World(service("http", 9090))
    world.sync([pod(1, http=80), pod(2, http=8080), pod(3, http=8080), pod(4), pod(5, ip="fd00::5", http=80)])
    result = {
        (slice_.addressType, tuple((port.name, port.port) for port in slice_.ports)): len(slice_.endpoints)
        for slice_ in world.slices.values()
    }
    assert result == {
        ("IPv4", (("port-http", 80), ("port-9090", 9090))): 1,
        ("IPv4", (("port-http", 8080), ("port-9090", 9090))): 2,
        ("IPv4", (("port-9090", 9090),)): 1,
        ("IPv6", (("port-http", 80), ("port-9090", 9090))): 1,
    }


def test_named_port_may_belong_to_a_sidecar_but_not_to_other_init_containers() -> None:
    proxied, shadowed, soon_gone = pod(1), pod(2, http=8080), pod(3)
    for each, policy in ((proxied, "Always"), (shadowed, "Always"), (soon_gone, "")):
        each.spec.initContainers.add(name="proxy", restartPolicy=policy).ports.add(name="http", containerPort=15001)
    world = World(service("http"))
    world.sync([proxied, shadowed, soon_gone])
    result = {slice_.endpoints[0].targetRef.name: [port.port for port in slice_.ports] for slice_ in world.slices.values()}
    assert result == {"p1": [15001], "p2": [8080], "p3": []}


def test_slices_are_filled_to_capacity_with_few_writes() -> None:
    world, pods = World(service()), [pod(number) for number in range(250)]
    assert len(world.sync(pods[:220]).create) == 3
    assert world.sizes == [20, CAPACITY, CAPACITY]

    result = world.sync(pods[:225])  # one slice has room
    assert (len(result.create), len(result.update), len(result.delete)) == (0, 1, 0)

    pods[7].status.conditions[0].status = "False"
    result = world.sync([*pods[:50], *pods[51:226]])  # an unready, a removed and a new pod change one slice
    assert (len(result.create), len(result.update), len(result.delete)) == (0, 1, 0)

    result = world.sync(pods[100:200])
    assert (len(result.create), len(result.update), len(result.delete)) == (0, 0, 2)
    result = world.sync([])
    assert world.sizes == [0]


@pytest.mark.parametrize(
    ("held", "there", "writes", "sizes"),
    [
        ([(1, 246, 4), (3, 246, 4)], 250, (1, 1), [61, 89, 100]),
        ([(1, 296, 4), (3, 296, 4)], 300, (2, 0), [52, 74, 74, 100]),
        ([(0, 95, 1), (95, 190, 1)], 200, (1, 0), [10, 95, 95]),
        ([(0, 40, 1), (40, 100, 1)], 110, (0, 1), [40, 70]),
    ],
    ids=["fullest of many", "several do not fit", "no slice has room", "fullest"],
)
def test_new_endpoints_change_at_most_one_other_slice(
    held: list[tuple[int, int, int]], there: int, writes: tuple[int, int], sizes: list[int]
) -> None:
    """The first two cases are those of Kubernetes."""
    world, pods = World(service()), [pod(number) for number in range(there)]
    world.holds(*([pods[number] for number in range(*picked)] for picked in held))
    result = world.sync(pods)
    assert (len(result.create), len(result.update), result.delete) == (*writes, [])
    assert world.sizes == sizes


def test_slice_with_changed_labels_takes_the_new_endpoints() -> None:
    world, pods = World(service()), [pod(number) for number in range(30)]
    world.holds(pods[:5], pods[5:20])
    world.slices["old-0"].metadata.labels["team"] = "b"
    result = world.sync(pods)
    assert [(item.metadata.name, len(item.endpoints)) for item in result.update] == [("old-0", 15)]


def test_port_change_updates_slices_in_place() -> None:
    """If the slices were replaced, a client that sees the deletions first would find no endpoints."""
    world, pods = World(service(8080)), [pod(number) for number in range(25)]
    world.holds(*(pods[start : start + 5] for start in range(0, 25, 5)))
    world.service.spec.ports[0].targetPort.intVal = 9090
    result = world.sync(pods)
    assert (result.create, [item.metadata.name for item in result.update], len(result.delete)) == ([], ["old-0"], 4)
    assert [port.port for port in world.slices["old-0"].ports] == [9090] and world.sizes == [25]


def test_slice_of_another_address_family_is_replaced() -> None:
    """The addressType of a slice is immutable."""
    world = World(service())
    world.sync([pod(1)])
    result = world.sync([pod(1, ip="fd00::1")])
    assert (len(result.create), result.update, len(result.delete)) == (1, [], 1)


@pytest.mark.parametrize("headless", [True, False])
def test_headless_label_of_a_service_is_not_copied(headless: bool) -> None:
    world = World(service(headless=headless))
    world.service.metadata.labels["service.kubernetes.io/headless"] = "invalid"
    world.sync([pod(1)])
    [made] = world.slices.values()
    assert made.metadata.labels.get("service.kubernetes.io/headless") == ("" if headless else None)


@pytest.mark.parametrize("owner", ["uid-before", ""])
def test_slices_of_a_previous_service_with_the_same_name_are_replaced(owner: str) -> None:
    """Without an owner, the garbage collector would never delete such a slice."""
    world, pods = World(service()), [pod(1)]
    world.sync(pods)
    [before] = world.slices.values()
    if owner:
        before.metadata.ownerReferences[0].uid = owner
    else:
        del before.metadata.ownerReferences[:]
    result = world.sync(pods)
    assert (result.delete, result.update) == ([before], [])
    assert [[owner_reference.uid for owner_reference in made.metadata.ownerReferences] for made in result.create] == [
        ["uid-web"]
    ]
    assert world.sizes == [1]


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [({"app": "web"}, {"app": "web", "x": "y"}, True), ({"app": "web"}, {"app": "db"}, False), ({}, {"app": "web"}, False)],
)
def test_service_selects_pods_by_labels_and_none_without_a_selector(
    selector: dict[str, str], labels: dict[str, str], expected: bool
) -> None:
    made = Service()
    made.spec.selector.update(selector)
    assert service_selector(made).matches(labels) is expected


@pytest.mark.parametrize("label", [None, "other"])
async def test_slice_with_a_changed_service_label_is_replaced(label: str | None) -> None:
    world = World(service())
    world.sync([pod(1)])
    [before] = world.slices.values()
    before.metadata.namespace = "default"
    after = EndpointSlice()
    after.CopyFrom(before)
    del after.metadata.labels[SERVICE_LABEL]
    if label:
        after.metadata.labels[SERVICE_LABEL] = label
    cluster = Cluster(world.service, [pod(1)], ["n"], [after])
    for key in cluster.keys(ENDPOINT_SLICES, Delta(MODIFIED, after, before)):
        await cluster.controller.sync(key)
    assert [item.metadata.labels[SERVICE_LABEL] for item in cluster.created] == ["web"]


class Cluster:
    """Records created objects, and does not store them."""

    def __init__(self, of: Service, pods: list[Pod], nodes: Iterable[str], slices: Iterable[EndpointSlice] = ()) -> None:
        self.nodes = {name: make_node(name).build() for name in nodes}
        self.created: list[EndpointSlice] = []
        things: dict[Any, Any] = {SERVICES: [of], ENDPOINT_SLICES: slices, PODS: pods}
        informers = SimpleNamespace(
            store=lambda resource: self.nodes if resource is NODES else {store_key(thing): thing for thing in things[resource]},
            index=lambda resource, by: Index(by, things[resource]),
            selecting=lambda resource, selector_of: SelectorIndex(selector_of, things[resource]),
            labelled=lambda resource: LabelIndex(select_all, pods),
            wait_for=self._know,
        )
        client = SimpleNamespace(of=lambda resource: SimpleNamespace(create=self._create))
        shared: Any = SimpleNamespace(informers=informers, client=client)
        self.controller = EndpointSliceController(shared)

    async def _know(self, *_: object) -> None:
        pass

    async def _create(self, made: EndpointSlice) -> EndpointSlice:
        self.created.append(made)
        return made

    def keys(self, resource: Resource[Any], delta: Delta[Any]) -> set[str]:
        """The keys to sync after a change."""
        return {key for watch in self.controller.watches if watch.resource is resource for key in watch.keys(delta)}

    async def endpoints(self) -> set[str]:
        """The nodes of the endpoints that the controller creates."""
        self.created.clear()
        await self.controller.sync("default/web")
        return {item.nodeName for made in self.created for item in made.endpoints}


def on(node: str, number: int) -> Pod:
    made = pod(number)
    made.spec.nodeName = node
    return made


@pytest.mark.parametrize(("anyway", "expected"), [(False, {"here"}), (True, {"here", "gone"})])
async def test_pod_on_a_deleted_node_is_no_endpoint(anyway: bool, expected: set[str]) -> None:
    web = service()
    web.spec.publishNotReadyAddresses = anyway
    assert await Cluster(web, [on("here", 1), on("gone", 2)], ["here"]).endpoints() == expected


async def test_added_and_deleted_nodes_enqueue_their_services_and_heartbeats_do_not() -> None:
    cluster = Cluster(service(), [on("a", 1), on("b", 2)], ["a", "b"])
    a, b = cluster.nodes.values()
    assert await cluster.endpoints() == {"a", "b"}
    assert not cluster.keys(NODES, Delta(MODIFIED, a, a))
    del cluster.nodes["b"]
    assert cluster.keys(NODES, Delta(DELETED, b, b)) == {"default/web"}
    assert await cluster.endpoints() == {"a"}
    assert not cluster.keys(NODES, Delta(ADDED, make_node("other").build(), None))
    cluster.nodes["b"] = b
    assert cluster.keys(NODES, Delta(ADDED, b, None)) == {"default/web"}
    assert await cluster.endpoints() == {"a", "b"}
    assert not cluster.keys(NODES, Delta(ADDED, b, None))


def test_later_zone_of_a_node_reaches_the_endpoints() -> None:
    """Nodes may get their labels after pods are bound to them (kubernetes#47044)."""
    cluster = Cluster(service(), [on("n", 1)], ["n"])
    bare = make_node("n").build()
    zoned = make_node("n").label("topology.kubernetes.io/zone", "a").build()
    assert cluster.keys(NODES, Delta(MODIFIED, zoned, bare)) == {"default/web"}
    assert cluster.keys(NODES, Delta(MODIFIED, zoned, zoned)) == set()
