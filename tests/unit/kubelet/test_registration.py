"""Registration of nodes, with a fake API that stores them."""

from collections.abc import Callable, Sequence

import pytest

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import MachineShape
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from pinnace.apiserver.server import MAX_REQUEST
from pinnace.client.errors import Forbidden, Unavailable, from_refusal, unavailable_error
from pinnace.kubelet.eviction import PressureKind
from pinnace.kubelet.registration import CHUNK, FleetMachine, NodeRegistrar, needs_spec_update, needs_status_update
from tests.builders import make_node
from tests.clock import FakeClock

MACHINE = FleetMachine(MachineShape({"cpu": "4"}))


def refusal(code: Code) -> Refusal:
    return Refusal(code, "Test", "as the test wants")


class FakeNodes:
    """Nodes by name. `refuse` has the codes of failing writes by the name of the node."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.batches: list[int] = []
        self.refuse: dict[str, Code] = {}
        self.forbidden: set[str] = set()
        """A call with one of these nodes is rejected as a whole."""
        self.down = False

    async def create_batch(self, objs: Sequence[Node]) -> Sequence[BatchItem]:
        return self._batch(objs, self._create)

    async def update_status_batch(self, objs: Sequence[Node]) -> Sequence[BatchItem]:
        return self._batch(objs, self._store)

    async def update(self, obj: Node) -> Node:
        item = self._store(obj)
        if item.HasField("error"):
            raise from_refusal(refusal(Code(item.error.code)))
        return obj

    async def modify(self, name: str, namespace: str, change: Callable[[Node], None]) -> Node:
        if code := self.refuse.get(name):
            raise from_refusal(refusal(code))
        change(self.nodes[name])
        return self.nodes[name]

    def _batch(self, objs: Sequence[Node], write: Callable[[Node], BatchItem]) -> Sequence[BatchItem]:
        if self.down:
            raise unavailable_error("the test says so")
        if self.forbidden.intersection(obj.metadata.name for obj in objs):
            raise from_refusal(refusal(Code.PERMISSION_DENIED))
        assert sum(obj.ByteSize() for obj in objs) < MAX_REQUEST
        self.batches.append(len(objs))
        return [write(obj) for obj in objs]

    def _create(self, obj: Node) -> BatchItem:
        if obj.metadata.name in self.nodes:
            return BatchItem(error=encode(refusal(Code.ALREADY_EXISTS)))
        return self._store(obj)

    def _store(self, obj: Node) -> BatchItem:
        name = obj.metadata.name
        if code := self.refuse.get(name):
            return BatchItem(error=encode(refusal(code)))
        self.nodes[name] = obj
        return BatchItem(name=name)


class Events:
    """The recorded events, as node and reason."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def event(self, obj: Node, type_: str, reason: str, message: str) -> None:
        assert message == f"Node {obj.metadata.name} status is now: {reason}"
        self.recorded.append((obj.metadata.name, reason))


def registrar(nodes: FakeNodes, events: Events | None = None) -> NodeRegistrar:
    return NodeRegistrar(nodes, events or Events(), "fleet", MACHINE, clock=FakeClock())


def added(name: str) -> Node:
    """A node as `pinnace node add` creates it."""
    return make_node(name).label(FLEET_LABEL, "fleet").taint(NOT_READY_TAINT).build()


async def test_nodes_are_created_in_chunks_ready_for_pods() -> None:
    api = FakeNodes()
    await registrar(api).create_nodes([f"n-{index}" for index in range(CHUNK + 1)])
    assert api.batches == [CHUNK, 1]
    assert not any(
        needs_status_update(node, MACHINE) or needs_spec_update(node, "fleet", MACHINE) for node in api.nodes.values()
    )


async def test_large_nodes_are_reported_in_several_calls() -> None:
    api = FakeNodes(*(added(f"n-{index}") for index in range(CHUNK)))
    for node in api.nodes.values():
        node.metadata.annotations["about"] = "x" * (20 << 10)
    await registrar(api).update_nodes(list(api.nodes.values()))
    assert not any(needs_status_update(node, MACHINE) for node in api.nodes.values())
    assert sum(api.batches) == CHUNK


async def test_existing_nodes_are_adopted() -> None:
    api = FakeNodes(make_node("n-0").label(FLEET_LABEL, "another").build())
    await registrar(api).create_nodes(["n-0", "n-1"])
    assert {node.metadata.labels[FLEET_LABEL] for node in api.nodes.values()} == {"fleet"}


async def test_rejected_creation_does_not_block_other_nodes() -> None:
    api = FakeNodes()
    names = [f"n-{index}" for index in range(CHUNK + 1)]
    api.refuse["n-0"] = Code.PERMISSION_DENIED
    refused = await registrar(api).create_nodes(names)
    assert refused.keys() == {"n-0"} and isinstance(refused["n-0"], Forbidden)
    assert api.nodes.keys() == {*names} - {"n-0"}


async def test_rejected_adoption_does_not_block_other_nodes() -> None:
    names = ["n-0", "n-1"]
    api = FakeNodes(*(make_node(name).label(FLEET_LABEL, "another").build() for name in names))
    api.refuse["n-0"] = Code.PERMISSION_DENIED
    assert (await registrar(api).create_nodes(names)).keys() == {"n-0"}
    assert api.nodes["n-1"].metadata.labels[FLEET_LABEL] == "fleet"


async def test_rejected_writes_of_a_node_do_not_block_other_nodes() -> None:
    api = FakeNodes(*(added(f"n-{index}") for index in range(CHUNK + 1)))
    api.refuse["n-0"] = Code.PERMISSION_DENIED
    for _ in range(2):
        assert (await registrar(api).update_nodes(list(api.nodes.values()))).keys() == {"n-0"}
    left = [
        name
        for name, node in api.nodes.items()
        if needs_status_update(node, MACHINE) or needs_spec_update(node, "fleet", MACHINE)
    ]
    assert left == ["n-0"]


async def test_rejected_taint_removal_does_not_block_other_nodes() -> None:
    api = FakeNodes(added("n-0"), added("n-1"))
    await registrar(api).update_nodes(list(api.nodes.values()))
    api.refuse["n-0"] = Code.PERMISSION_DENIED
    assert (await registrar(api).update_nodes(list(api.nodes.values()))).keys() == {"n-0"}
    assert not needs_spec_update(api.nodes["n-1"], "fleet", MACHINE)


async def test_rejected_call_rejects_all_its_nodes() -> None:
    api = FakeNodes()
    api.forbidden = {"n-0"}
    refused = await registrar(api).create_nodes([f"n-{index}" for index in range(CHUNK + 1)])
    assert len(refused) == CHUNK and api.nodes.keys() == {f"n-{CHUNK}"}


async def test_added_node_is_ready_after_one_pass_and_untainted_after_two() -> None:
    api = FakeNodes(added("n-0"))
    await registrar(api).update_nodes(api.nodes.values())
    assert not needs_status_update(api.nodes["n-0"], MACHINE)
    assert needs_spec_update(api.nodes["n-0"], "fleet", MACHINE)
    await registrar(api).update_nodes(api.nodes.values())
    assert not needs_spec_update(api.nodes["n-0"], "fleet", MACHINE)


async def test_unchanged_node_writes_nothing() -> None:
    api = FakeNodes()
    await registrar(api).create_nodes(["n-0"])
    api.batches.clear()
    api.refuse["n-0"] = Code.PERMISSION_DENIED
    await registrar(api).update_nodes(api.nodes.values())
    assert api.batches == []


@pytest.mark.parametrize("code", [Code.ABORTED, Code.NOT_FOUND])
async def test_node_that_changed_meanwhile_is_left_to_the_next_pass(code: Code) -> None:
    api = FakeNodes(added("n-0"), added("n-1"))
    await registrar(api).update_nodes([api.nodes["n-0"]])
    before = [api.nodes["n-0"], api.nodes["n-1"]]
    api.refuse = {"n-0": code, "n-1": code}
    await registrar(api).update_nodes(before)
    assert list(api.nodes.values()) == before


async def test_registration_without_an_api_server_raises() -> None:
    api = FakeNodes(added("n-0"))
    api.down = True
    with pytest.raises(Unavailable):
        await registrar(api).update_nodes(api.nodes.values())
    with pytest.raises(Unavailable):
        await registrar(api).create_nodes(["n-1"])


async def test_node_events_are_recorded_after_the_write() -> None:
    api, events = FakeNodes(), Events()
    fleet_registrar = registrar(api, events)
    await fleet_registrar.create_nodes(["n-0", "n-1"])
    for node in api.nodes.values():
        conditions.set_condition(node.status.conditions, "Ready", "Unknown", "NodeStatusUnknown", "", 0.0)
    api.refuse["n-1"] = Code.ABORTED
    short: list[PressureKind] = []

    async def run_pass() -> list[tuple[str, str]]:
        events.recorded.clear()
        await fleet_registrar.update_nodes(list(api.nodes.values()), lambda name: short)
        return events.recorded

    assert await run_pass() == [("n-0", "NodeReady")]
    assert await run_pass() == []
    short += [PressureKind.MEMORY, PressureKind.DISK]
    assert await run_pass() == [("n-0", "NodeHasInsufficientMemory"), ("n-0", "NodeHasDiskPressure")]
    assert await run_pass() == []
    short.clear()
    assert await run_pass() == [("n-0", "NodeHasSufficientMemory"), ("n-0", "NodeHasNoDiskPressure")]


async def test_starting_nodes_record_no_events() -> None:
    api, events = FakeNodes(added("n-0")), Events()
    fleet_registrar = registrar(api, events)
    await fleet_registrar.create_nodes(["n-1"])
    await fleet_registrar.update_nodes(list(api.nodes.values()))
    assert not needs_status_update(api.nodes["n-0"], MACHINE) and events.recorded == []
