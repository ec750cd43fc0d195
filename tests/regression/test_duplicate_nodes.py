"""Two machines with the same node name."""

import asyncio
from collections.abc import Callable, Sequence

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.machines import MachineShape
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.client.client import Client
from pinnace.client.heartbeat import HEARTBEAT_METHOD, NodeSession
from pinnace.kubelet import registration
from pinnace.kubelet.fleet import Fleet
from pinnace.kubelet.runtime.interface import read_clocks
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.builders import make_pod
from tests.contract.electing import ServeOn
from tests.contract.servers import PATIENCE
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually
from tests.unit.client.fakeserver import connect

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODE = LEASES.key(NODE_LEASE_NAMESPACE, "n")


class Machine:
    """A session for node n. `taken_over_by` is set once another session holds the node."""

    def __init__(self, address: str) -> None:
        self.connection = connect(address)
        self.taken_over_by = ""
        self.session = NodeSession(self.connection, "fleet", ["n"], on_taken_over=self._taken_over)
        self.running = asyncio.ensure_future(self.session.run())

    def _taken_over(self, nodes: Sequence[str], holder: str) -> None:
        self.taken_over_by = holder

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait((self.running,))
        await self.connection.close()


async def lease_of(storage: MemoryStorage) -> tuple[int, int]:
    """Return the session that holds the node and the number of lease transitions."""
    record = await storage.get(NODE)
    return (record.lease, Lease.FromString(record.value).spec.leaseTransitions) if record else (0, 0)


async def test_kubernetes_79779_kubelets_with_the_same_name_do_not_compete_for_the_lease(serve: ServeOn) -> None:
    """Two nodes with the same host name overwrote each other's Node object continuously, which loaded the cluster:
    https://github.com/kubernetes/kubernetes/issues/79779

    Here: the holder of the node's lease would change with each heartbeat or reconnection. Guard: a new session takes over the
    node, and the server notifies the older session, which releases it. A resumed session (`Open.session`) takes over no
    nodes."""
    storage = MemoryStorage()
    server = await serve(storage)
    old = Machine(server.address)
    await eventually(lambda: old.session.healthy is None)
    first, _ = await held(storage, lambda lease: lease != 0)
    new = Machine(server.address)
    second, transitions = await held(storage, lambda lease: lease not in (0, first))
    await eventually(lambda: old.taken_over_by == "fleet")
    assert transitions == 1 and list(old.session.nodes) == []
    stream = await old.connection.duplex(HEARTBEAT_METHOD, HeartbeatRequest, HeartbeatResponse)
    await stream.write(HeartbeatRequest(open=HeartbeatRequest.Open(holder="fleet", nodes=["n"], session=first)))
    async with asyncio.timeout(PATIENCE):
        while (response := await stream.read()) is not None and not response.HasField("taken_over"):
            pass
    assert response is not None, "the resumed session was not notified of the take-over"
    stream.cancel()
    assert await lease_of(storage) == (second, transitions)
    for machine in (old, new):
        await machine.stop()


async def held(storage: MemoryStorage, wanted: Callable[[int], bool]) -> tuple[int, int]:
    """Return `lease_of` once the session meets the condition."""
    async with asyncio.timeout(PATIENCE):
        async for _ in storage.watch(2):
            result = await lease_of(storage)
            if wanted(result[0]):
                return result
    raise AssertionError("the watch ended")


async def test_kubernetes_37528_kubelets_with_the_same_name_do_not_both_run_a_pod() -> None:
    """Two machines with the same host name both started the pods that were bound to that name:
    https://github.com/kubernetes/kubernetes/issues/37528

    Here: two fleets run the same node. Guard: the fleet whose session loses the node drops it and its containers."""
    async with serving(MemoryStorage()) as address:
        runtimes = [SimulatedRuntime(Behaviour()) for _ in range(2)]
        clients = [Client(connect(address)) for _ in range(2)]
        machine = registration.FleetMachine(MachineShape(CAPACITY))
        fleets = [Fleet("fleet", ["n"], machine, client, runtime) for client, runtime in zip(clients, runtimes, strict=True)]
        tasks = [asyncio.ensure_future(fleets[0].run())]
        await eventually(lambda: all(check() is None for check in fleets[0].checks.values()))
        pod = await clients[0].pods.create(make_pod("a").req(cpu=1).node("n").new())

        def running() -> list[bool]:
            return [bool(runtime.observe_containers(pod.metadata.uid, read_clocks(SYSTEM_CLOCK))) for runtime in runtimes]

        await eventually(lambda: running() == [True, False])
        tasks.append(asyncio.ensure_future(fleets[1].run()))
        await eventually(lambda: running() == [False, True])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.connection.close()
