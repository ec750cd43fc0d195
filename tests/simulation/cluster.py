"""A simulated cluster: real API servers, schedulers and kubelets as processes of one loop, before one etcd."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from pinnace.api.machines import MachineShape
from pinnace.apiserver.assembly import Assembly
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.informer import OtherHistory, RestartSupervisor
from pinnace.client.standby import TermFailed
from pinnace.history.records import ContainerRun
from pinnace.kubelet.fleet import Fleet
from pinnace.kubelet.registration import FleetMachine
from pinnace.kubelet.run_log import BEAT, LoggedRuntime
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.scheduler import Scheduler
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_port import Odds, Port
from tests.simulation.journal import MemoryJournal
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.server import SimServer
from tests.simulation.users import FLEET

MEMORY = 500
"""MiB that a pod of an owner takes."""

Main = Callable[[Process, "Member"], Awaitable[None]]
"""What a process runs."""


@dataclass(slots=True)
class Member:
    """A process that can die and be started again."""

    role: str
    """apiserver, scheduler, candidate, kubelet or client."""
    process: Process
    main: Main
    stop: Callable[[], Awaitable[None]] | None = None
    """A polite end, as SIGTERM is."""

    @property
    def name(self) -> str:
        return self.process.name


class Cluster:
    """`odds`: of the ways between API servers and etcd; faults change them. `ports`: these ways, by server."""

    def __init__(
        self, loop: SimLoop, network: Network, etcd: SimEtcd, journal: MemoryJournal, rng: random.Random, servers: int
    ) -> None:
        self.loop = loop
        self.network = network
        self.etcd = etcd
        self.journal = journal
        self.rng = rng
        self.odds = Odds()
        self.ports: dict[str, Port] = {}
        self.ending: set[str] = set()
        """The schedulers whose term a fault has ended: what they log about that is no failure."""
        self.schedulers: dict[str, Scheduler] = {}
        """By process, of those that have been started; the latest of each."""
        self.scheduler_clients: dict[str, Client] = {}
        """Theirs."""
        self.endpoints = [f"apiserver-{index}:7480" for index in range(servers)]
        self.members: dict[str, Member] = {}
        self.nodes = 0
        """Of the fleet."""
        self.pods = 0
        """That a node has memory for."""

    def of(self, role: str) -> list[Member]:
        """Those that live."""
        return [member for member in self.members.values() if member.role == role and member.process.alive]

    def start(self, role: str, name: str, main: Main) -> Member:
        member = self.members[name] = Member(role, Process(name, self.loop), main)
        self._run(member)
        return member

    def restart(self, member: Member) -> None:
        """A new life of a process that has died: the clock is the machine's, and stays."""
        member.process = Process(member.name, self.loop, member.process.clock)
        member.stop = None
        self._run(member)

    def start_servers(self) -> None:
        for endpoint in self.endpoints:
            self.start("apiserver", endpoint.partition(":")[0], self._serve)

    def start_schedulers(self, replicas: int) -> None:
        for index in range(replicas):
            self.start("scheduler", f"scheduler-{index}", self._schedule)

    def start_fleet(self, nodes: int, pods: int, name: str = "kubelet-0") -> Member:
        """A process that plays these nodes, each with memory for so many pods. A second one is a twin: it takes them over."""
        self.nodes, self.pods = nodes, pods
        machine = FleetMachine(MachineShape({"cpu": "8", "memory": f"{pods * MEMORY}Mi", "pods": "110"}, zones=()))
        names = [f"{FLEET}-{index}" for index in range(nodes)]

        async def play(process: Process, member: Member) -> None:
            life = ""

            def witness(ran: ContainerRun) -> None:
                self.journal.write(replace(ran, process=life))

            def make() -> Fleet:
                nonlocal life
                life = f"{process.name}@{process.clock.monotonic():.3f}"
                runtime = LoggedRuntime(SimulatedRuntime(Behaviour(start_seconds=0.05)), witness, process.clock)
                return Fleet(FLEET, names, machine, self.client(), runtime, clock=process.clock)

            async def beat() -> None:
                while True:
                    await process.clock.sleep(BEAT)
                    witness(ContainerRun(process.clock.monotonic(), "", "", "", "alive"))

            lives = RestartSupervisor(make, process.clock, causes=(OtherHistory,))
            member.stop = lambda: lives.now.close()
            beating = asyncio.ensure_future(beat())
            try:
                await lives.run()
            finally:
                beating.cancel()

        return self.start("kubelet" if name == "kubelet-0" else "twin", name, play)

    def client(self) -> Client:
        """A client of the process that runs now."""
        return Client(Connection(self.endpoints))

    def fork(self) -> random.Random:
        """A generator of its own for somebody."""
        return random.Random(self.rng.getrandbits(64))

    def _run(self, member: Member) -> None:
        member.process.start(lambda: member.main(member.process, member))

    async def _serve(self, process: Process, member: Member) -> None:
        port = self.ports[process.name] = Port(self.etcd, self.fork(), self.odds)
        assembly = Assembly(port, clock=process.clock, rng=self.fork())
        server = SimServer(assembly, self.network, process, f"{process.name}:7480")
        member.stop = server.stop
        await server.run()

    async def _schedule(self, process: Process, member: Member) -> None:
        seed = self.rng.getrandbits(32)
        client = self.scheduler_clients[process.name] = self.client()
        configuration = Configuration(seed=seed, initial_backoff=0.2, max_backoff=1.0)

        def make() -> Scheduler:
            scheduler = self.schedulers[process.name] = Scheduler(client, process.name, configuration, clock=process.clock)
            return scheduler

        lives = RestartSupervisor(
            make, process.clock, causes=(OtherHistory, TermFailed)
        )  # what it then logs is a failure of the run
        member.stop = lambda: lives.now.stop()
        await lives.run()
