"""What goes wrong. Each fault chooses its target when it strikes; all of it is over before the run is quiet. It is over when
nobody waits any more for what it has swallowed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count

from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import PODS, election_key
from pinnace.apiserver.storage.etcd.storage import SILENCE_LIMIT
from pinnace.cluster.spec import ELECTION
from pinnace.history.records import FaultRecord
from pinnace.verification.chaos.workers import LOAD
from tests.simulation.cluster import Cluster, Member
from tests.simulation.etcd_port import TIMEOUT
from tests.simulation.plan import ENDING, Blow

RESTART = 0.3
"""Seconds, at least, after which a process that died is started again."""
NOTICED = SILENCE_LIMIT + 2.0
"""Seconds within which an API server notices that etcd tells it nothing, if there is anything to tell."""
MAX_CLOCK_STEP = 7200.0
STALL = 0.8
"""Seconds: more than a candidate's patience, less than its validity."""
LAG = 1.5
"""Mean seconds by which etcd's watch lags at an API server that has stalled."""

Strike = Callable[[Cluster], AbstractAsyncContextManager[str | None]]
"""Gives the target; None: there was none. The fault is on while the context lasts."""
FAULTS: dict[str, Strike] = {}


class Nemesis:
    """Strikes, and writes down what it did."""

    def __init__(self, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._tell = tell
        self._ids = count(1)

    async def strike(self, blow: Blow) -> None:
        """Begins a fault now, and ends it in its time."""
        clock, journal = self._cluster.loop.world.clock, self._cluster.journal
        began = clock.monotonic()
        async with FAULTS[blow.fault](self._cluster) as target:
            fault = FaultRecord(next(self._ids), blow.fault, target or "", began, fired=target is not None)
            journal.write(fault)
            if target is None:
                return
            self._tell(f"{blow.fault} {target} for {blow.seconds:.2f} s")
            await clock.sleep(blow.seconds)
        self._tell(f"{blow.fault} {target} is over")
        journal.write(replace(fault, ended=clock.monotonic()))


def _choose(cluster: Cluster, role: str) -> Member | None:
    """One that runs."""
    members = [member for member in cluster.of(role) if not member.process.paused]
    return cluster.rng.choice(members) if members else None


def _pause(role: str) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        """SIGSTOP, then SIGCONT."""
        if (member := _choose(cluster, role)) is None:
            yield None
            return
        process = member.process
        process.pause()
        cluster.network.silenced(process)
        try:
            yield member.name
        finally:
            process.resume()

    return strike


def _kill(role: str) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        """SIGKILL, and a new start."""
        if (member := _choose(cluster, role)) is None:
            yield None
            return
        member.process.crash()
        yield member.name
        await cluster.loop.world.clock.sleep(RESTART * cluster.rng.uniform(0.2, 2.0))
        cluster.restart(member)

    return strike


@asynccontextmanager
async def _kill_while_late(cluster: Cluster) -> AsyncIterator[str | None]:
    """The API server of a standby stalls, and lags when it goes on; then the leader dies right after a bind, with more to bind:
    the next one is elected before its informers can have seen that."""
    clock = cluster.loop.world.clock
    leader, standby = _leader(cluster), _standby(cluster)
    server = _server_of(cluster, standby)
    if leader is None or server is None or not _runs(server) or len(cluster.endpoints) < 2:
        yield None
        return
    async with _stalled(cluster, server):
        bound = _bound(cluster)
        deadline = clock.monotonic() + LAG
        while not (_bound(cluster) - bound and _has_backlog(cluster)) and clock.monotonic() < deadline:
            await clock.sleep(0.002)
        if leader.process.alive:
            leader.process.crash()
        yield f"{leader.name}, {server.name}"
        if not leader.process.alive:
            cluster.restart(leader)


@asynccontextmanager
async def _stall(cluster: Cluster) -> AsyncIterator[str | None]:
    """An API server stands still for a moment, and lags when it goes on: it learns late what has happened meanwhile."""
    server = _choose(cluster, "apiserver")
    if server is None:
        yield None
        return
    async with _stalled(cluster, server):
        yield server.name


@asynccontextmanager
async def _stalled(cluster: Cluster, server: Member) -> AsyncIterator[None]:
    """Stands still for so long that candidates leave it, and informers do not; then lags while the context lasts."""
    port = cluster.ports[server.name]
    port.lag(LAG)
    server.process.pause()
    try:
        await cluster.loop.world.clock.sleep(STALL)
    finally:
        server.process.resume()
    try:
        yield
    finally:
        port.lag(-LAG)


def _runs(member: Member) -> bool:
    return member.process.alive and not member.process.paused


def _server_of(cluster: Cluster, scheduler: Member | None) -> Member | None:
    """The API server that a scheduler is connected to."""
    if scheduler is None or scheduler.name not in cluster.scheduler_clients:
        return None
    return cluster.members.get(cluster.scheduler_clients[scheduler.name].connection.endpoint.partition(":")[0])


def _leader(cluster: Cluster) -> Member | None:
    """The scheduler that leads."""
    record = cluster.etcd.store.get(election_key(ELECTION))
    member = cluster.members.get(Election.FromString(record.value).holder) if record is not None else None
    return member if member is not None and _runs(member) else None


def _standby(cluster: Cluster) -> Member | None:
    """A scheduler that does not lead."""
    leader = _leader(cluster)
    return next((member for member in cluster.of("scheduler") if member is not leader and _runs(member)), None)


def _bound(cluster: Cluster) -> set[str]:
    return {facts.uid for facts in cluster.journal.pods.values() if facts.node}


def _has_backlog(cluster: Cluster) -> bool:
    """Does a pod wait for a node?"""
    pods = cluster.journal.pods.items()
    return any(key.startswith(f"{PODS.prefix}{LOAD}/") and not facts.node and not facts.terminating for key, facts in pods)


@asynccontextmanager
async def _end_term(cluster: Cluster) -> AsyncIterator[str | None]:
    """The task in which the leader makes its decisions is cancelled, by nobody who wants the term to end."""
    leader = _leader(cluster)
    term = cluster.schedulers[leader.name]._standby._started_term if leader is not None else None
    if leader is None or term is None or term.done():
        yield None
        return
    cluster.ending.add(leader.name)
    term.cancel()
    yield leader.name
    cluster.ending.discard(leader.name)


@asynccontextmanager
async def _kill_and_compact(cluster: Cluster) -> AsyncIterator[str | None]:
    """An API server starts anew when what its clients have not seen is compacted."""
    async with _kill("apiserver")(cluster) as target:
        yield target
        cluster.etcd.compact_all()


def _stop(role: str) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        """SIGTERM, the polite end, and a new start."""
        member = _choose(cluster, role)
        if member is None or member.stop is None:
            yield None
            return
        process = member.process
        stopping = process.start(member.stop)
        yield member.name
        if not stopping.done():
            await cluster.loop.world.clock.sleep(RESTART)
        if process.alive:
            process.crash()
            cluster.restart(member)

    return strike


def _partition(one_way: bool) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        """Between an API server and some of its clients."""
        rng, network = cluster.rng, cluster.network
        server = rng.choice(cluster.endpoints).partition(":")[0]
        others = [name for name, member in cluster.members.items() if member.role != "apiserver"]
        cut = rng.sample(others, rng.randint(1, len(others)))
        ways = [(name, server) for name in cut]
        ways = [(b, a) if rng.random() < 0.5 else (a, b) for a, b in ways] if one_way else ways + [(b, a) for a, b in ways]
        for way in ways:
            network.block(*way)
        try:
            yield ", ".join(f"{a}->{b}" for a, b in ways)
        finally:
            for way in ways:
                network.unblock(*way)

    return strike


def _twin(polite: bool) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        """A second kubelet with the name and the nodes of the first: the newest has them, as long as it lives."""
        if cluster.of("twin"):
            yield None
            return
        twin = cluster.start_fleet(cluster.nodes, cluster.pods, f"twin-{len(cluster.members)}")
        yield twin.name
        if polite and twin.stop is not None:
            await twin.process.start(twin.stop)
        twin.process.crash()

    return strike


@asynccontextmanager
async def _reset(cluster: Cluster) -> AsyncIterator[str | None]:
    """Connections break, with what is on its way."""
    others = [name for name, member in cluster.members.items() if member.role != "apiserver"]
    name, server = cluster.rng.choice(others), cluster.rng.choice(cluster.endpoints).partition(":")[0]
    broken = cluster.network.reset(name, server)
    yield f"{name}-{server}" if broken else None


def _weather(loss: float, jitter: float) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        weather = cluster.network.weather
        weather.loss += loss
        weather.jitter += jitter
        try:
            yield "network"
        finally:
            weather.loss -= loss
            weather.jitter -= jitter

    return strike


@asynccontextmanager
async def _set_clock(cluster: Cluster) -> AsyncIterator[str | None]:
    """A wall clock is set, and stays wrong: nobody may notice."""
    member = cluster.rng.choice(list(cluster.members.values()))
    member.process.clock.offset += cluster.rng.uniform(-MAX_CLOCK_STEP, MAX_CLOCK_STEP)
    yield member.name


@asynccontextmanager
async def _compact(cluster: Cluster) -> AsyncIterator[str | None]:
    cluster.etcd.compact_all()
    yield "etcd"


@asynccontextmanager
async def _etcd_away(cluster: Cluster) -> AsyncIterator[str | None]:
    """No leader."""
    if not cluster.etcd.has_leader:
        yield None
        return
    cluster.etcd.lose_leader()
    yield "etcd"
    if cluster.etcd.elect_leader():
        await cluster.loop.world.clock.sleep(TIMEOUT)


@asynccontextmanager
async def _etcd_full(cluster: Cluster) -> AsyncIterator[str | None]:
    cluster.etcd.fill()
    try:
        yield "etcd"
    finally:
        cluster.etcd.free()


def _etcd_odds(loss: float, latency: float, watch_latency: float) -> Strike:
    @asynccontextmanager
    async def strike(cluster: Cluster) -> AsyncIterator[str | None]:
        odds = cluster.odds
        odds.loss += loss
        odds.latency += latency
        odds.watch_latency += watch_latency
        try:
            yield "etcd"
        finally:
            odds.loss -= loss
            odds.latency -= latency
            odds.watch_latency -= watch_latency

    return strike


@asynccontextmanager
async def _cut_etcd(cluster: Cluster) -> AsyncIterator[str | None]:
    """Between an API server and etcd, in one direction or both."""
    rng = cluster.rng
    name = rng.choice(list(cluster.ports))
    port = cluster.ports[name]
    way = rng.choice(("requests", "answers", "both"))
    port.block(requests=way != "answers", answers=way != "requests")
    yield f"{name} ({way})"
    if port.heal():
        await cluster.loop.world.clock.sleep(TIMEOUT)


@asynccontextmanager
async def _compact_behind(cluster: Cluster) -> AsyncIterator[str | None]:
    """What an API server misses while it is cut off from etcd is compacted."""
    name = cluster.rng.choice(list(cluster.ports))
    port = cluster.ports[name]
    port.block()
    try:
        yield name
    finally:
        cluster.etcd.compact_all()
        port.reset()
        port.heal()


@asynccontextmanager
async def _reset_etcd(cluster: Cluster) -> AsyncIterator[str | None]:
    name = cluster.rng.choice(list(cluster.ports))
    cluster.ports[name].reset()
    yield name


@asynccontextmanager
async def _stall_watch(cluster: Cluster) -> AsyncIterator[str | None]:
    """etcd tells an API server nothing any more, and does not say so. Over when that was noticed; with nothing to tell there
    is nothing to notice."""
    name = cluster.rng.choice(list(cluster.ports))
    port, clock = cluster.ports[name], cluster.loop.world.clock
    yield name if port.stall_watches() else None
    deadline = clock.monotonic() + NOTICED
    while port.stalled and clock.monotonic() < deadline:
        await clock.sleep(0.1)
    if port.stalled:
        port.reset()


for _role in ("apiserver", "scheduler", "candidate", "kubelet"):
    FAULTS[f"pause-{_role}"] = _pause(_role)
    FAULTS[f"kill-{_role}"] = _kill(_role)
    FAULTS[f"stop-{_role}"] = _stop(_role)
FAULTS |= {
    "twin-kubelet": _twin(polite=True),
    "twin-kubelet-killed": _twin(polite=False),
    "partition": _partition(one_way=False),
    "partition-one-way": _partition(one_way=True),
    "reset": _reset,
    "slow-network": _weather(loss=0.0, jitter=0.05),
    "lossy-network": _weather(loss=0.1, jitter=0.0),
    "set-clock": _set_clock,
    "compact": _compact,
    "compact-behind": _compact_behind,
    "kill-apiserver-and-compact": _kill_and_compact,
    "kill-scheduler-while-late": _kill_while_late,
    "stall-apiserver": _stall,
    ENDING: _end_term,
    "etcd-away": _etcd_away,
    "etcd-full": _etcd_full,
    "etcd-slow": _etcd_odds(loss=0.0, latency=0.05, watch_latency=0.0),
    "etcd-lossy": _etcd_odds(loss=0.1, latency=0.0, watch_latency=0.0),
    "etcd-watch-late": _etcd_odds(loss=0.0, latency=0.0, watch_latency=0.2),
    "etcd-cut": _cut_etcd,
    "etcd-reset": _reset_etcd,
    "etcd-watch-stalls": _stall_watch,
}
