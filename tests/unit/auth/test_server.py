"""An API server behind real TLS: whom it takes its callers for, and what it lets them do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Binding, PodList, Service
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.pods_pb2 import Fence
from pinnace.api.rbac_v1_pb2 import RoleBinding
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, ROLE_BINDINGS
from pinnace.api.verbs_pb2 import Disruption, ListRequest
from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo
from pinnace.apiserver.auth.authentication import RequestAuthenticator, TokenFile
from pinnace.apiserver.server import ApiServer
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Forbidden, Invalid, NotFound, Unauthenticated, Unavailable, from_status
from pinnace.client.heartbeat import HEARTBEAT_METHOD
from pinnace.client.resource import delete_request
from pinnace.cluster import certificates
from pinnace.pki.authority import LIFETIME, Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.tls import TlsFiles
from pinnace.scheduler.plugins.volume_binding import bind_volume
from tests.builders import make_node, make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually

EDGE = "edge"
PATIENCE = 15.0


class Door:
    """A server, at which certificates are shown at `address`, and tokens at `tokens_at`."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self.folder = folder
        (folder / "tokens.csv").write_text("s3cret,eve,1,\n")
        certificates.create_certificates(folder, ["127.0.0.1:1"], {EDGE: ["edge-*"]})
        self._server = ApiServer(MemoryStorage(), RequestAuthenticator(now, TokenFile(folder / "tokens.csv")))
        self._connections: list[Connection] = []
        self.address = ""
        self.tokens_at = ""

    async def start(self) -> None:
        shown = certificates.component_files(self.folder, "apiserver")
        self.tokens_at = self._server.listen_for_tokens("127.0.0.1:0", shown)
        self.address = await self._server.start("127.0.0.1:0", shown)
        self._running = asyncio.ensure_future(self._server.run())
        await eventually(lambda: self._server.readiness() is None)

    def client(self, name: str) -> Client:
        return self.connect(self.address, certificates.component_files(self.folder, name))

    def connect(self, address: str, tls: TlsFiles | None) -> Client:
        self._connections.append(Connection([address], tls=tls))
        return Client(self._connections[-1])

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        await self._server.stop()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


@asynccontextmanager
async def door(folder: Path, now: Callable[[], float] = SYSTEM_CLOCK.time) -> AsyncIterator[Door]:
    door = Door(folder, now)
    await door.start()
    try:
        yield door
    finally:
        await door.close()


async def test_user_is_taken_from_the_certificate(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        assert (await server.client("admin").authorization.who_am_i()).username == "kubernetes-admin"
        fleet = await server.client(EDGE).authorization.who_am_i()
        assert (fleet.username, list(fleet.nodes)) == ("system:node:edge", ["edge-*"])


async def test_forbidden_error_names_user_verb_and_missing_permission(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        await server.client("admin").nodes.create(make_node("core-0").new())
        with pytest.raises(
            Forbidden, match='nodes "core-0" is forbidden: User "system:kube-scheduler" cannot delete'
        ) as caught:
            await server.client("scheduler").nodes.delete("core-0")
        assert (
            dict(caught.value.metadata)["hint"]
            == "this requires a ClusterRoleBinding to a ClusterRole such as system:kube-controller-manager"
        )
        with pytest.raises(Forbidden, match="limited to its own nodes"):
            await server.client(EDGE).nodes.get("core-0")


async def test_scheduler_binds_a_claim(tmp_path: Path) -> None:
    """All of it is written with what its role allows, or the claim is Pending for good."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disks"}
    volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/mnt/disk"}}
    claim = {**common, "resources": {"requests": {"storage": "1Gi"}}}
    async with door(tmp_path) as server:
        volumes, claims = map(server.client("admin").of, (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS))
        await bind_volume(
            server.client("scheduler"),
            await claims.create(from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": claim})),
            await volumes.create(from_dict(PERSISTENT_VOLUMES, {"metadata": {"name": "disk"}, "spec": volume})),
        )
        assert (await volumes.get("disk")).status.phase == "Bound"
        assert (await claims.get("data", "default")).status.phase == "Bound"


async def test_scheduler_binds_under_a_fence_only(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        await server.client("admin").pods.create(make_pod("a").req(cpu="1").new())
        binding = Binding()
        binding.metadata.namespace, binding.metadata.name, binding.target.name = "default", "a", "n"
        scheduler = server.client("scheduler")
        with pytest.raises(Forbidden, match="cannot bypass-fence"):
            await scheduler.pods.bind_batch([binding], None)
        (fenced,) = await scheduler.pods.bind_batch([binding], Fence(election="scheduler", token=1))
        assert "is not current" in from_status(fenced.error).message
        (bound,) = await server.client("admin").pods.bind_batch([binding], None)
        assert not bound.HasField("error")


async def test_eviction_condition_requires_permission_for_pod_status(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        admin, eve = server.client("admin"), server.connect(server.tokens_at, TlsFiles(tmp_path / "ca.crt", token="s3cret"))
        await admin.pods.create(make_pod("a").req(cpu="1").node("n").new())
        await admin.of(ROLE_BINDINGS).create(_bound_to("eve", "edit"))
        told = delete_request("a", "default", disruption=Disruption(reason="ByEve"))
        with pytest.raises(Forbidden, match='cannot update resource "pods/status"'):
            await eve.pods.delete_batch([told])
        (item,) = await eve.pods.delete_batch([delete_request("a", "default")])
        assert not item.HasField("error")
        with pytest.raises(Invalid, match="disruption: supported for pods only, not for services"):
            request = delete_request("a", "default", disruption=Disruption(reason="ByAdmin"))
            await admin.connection.call("/pinnace.v1.Services/Delete", request, Service)


async def test_page_token_opens_no_other_door(tmp_path: Path) -> None:
    """Neither another namespace, nor the past: who goes on with a list must be allowed to make it."""
    async with door(tmp_path) as server:
        admin, eve = server.client("admin"), server.connect(server.tokens_at, TlsFiles(tmp_path / "ca.crt", token="s3cret"))
        for number in range(2):
            pod = await admin.pods.create(make_pod(f"p{number}", "kube-system").req(cpu="1").new())
        await admin.of(ROLE_BINDINGS).create(_bound_to("eve", "view"))  # of the namespace default
        pages = ListRequest(namespace="kube-system", options=ListOptions(limit=1))
        first = await admin.connection.call("/pinnace.v1.Pods/List", pages, PodList)
        options = ListOptions(**{"continue": getattr(first.metadata, "continue")})
        with pytest.raises(Forbidden):
            await eve.connection.call("/pinnace.v1.Pods/List", ListRequest(namespace="kube-system", options=options), PodList)
        with pytest.raises(Invalid, match="belongs to another list"):
            await eve.connection.call("/pinnace.v1.Pods/List", ListRequest(namespace="default", options=options), PodList)
        with pytest.raises(Forbidden):
            await Client(eve.connection, at=int(pod.metadata.resourceVersion)).pods.get("p0", "kube-system")


async def test_tokens_are_taken_where_no_certificate_is_asked_for(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        ca = certificates.component_files(tmp_path, "admin").ca
        eve = server.connect(server.tokens_at, TlsFiles(ca, token="s3cret"))
        assert (await eve.authorization.who_am_i()).username == "eve"
        with pytest.raises(Forbidden, match='User "eve" cannot list'):
            await eve.pods.list()
        with pytest.raises(Unauthenticated, match="the bearer token is unknown"):
            await server.connect(server.tokens_at, TlsFiles(ca, token="guess")).pods.list()
        with pytest.raises(Unauthenticated, match="a client certificate or a bearer token is required"):
            await server.connect(server.tokens_at, TlsFiles(ca)).pods.list()


async def test_token_is_not_taken_in_place_of_a_certificate(tmp_path: Path) -> None:
    async with door(tmp_path) as server:
        ca = certificates.component_files(tmp_path, "admin").ca
        with pytest.raises(Unavailable):
            stranger = server.connect(server.address, TlsFiles(ca, token="s3cret"))
            await stranger.connection.call("/pinnace.v1.Version/Get", GetVersionRequest(), VersionInfo, timeout=1.0)


async def test_role_counts_at_once(tmp_path: Path) -> None:
    """Given by one call, used by the next."""
    async with door(tmp_path) as server:
        admin, eve = server.client("admin"), server.connect(server.tokens_at, TlsFiles(tmp_path / "ca.crt", token="s3cret"))
        with pytest.raises(Forbidden):
            await eve.pods.get("a", "default")
        await admin.of(ROLE_BINDINGS).create(_bound_to("eve", "view"))
        with pytest.raises(NotFound):
            await eve.pods.get("a", "default")
        await admin.of(ROLE_BINDINGS).delete("eve", "default")
        with pytest.raises(Forbidden):
            await eve.pods.get("a", "default")


async def test_client_reconnects_with_the_renewed_certificate(tmp_path: Path) -> None:
    later = [0.0]
    async with door(tmp_path, lambda: SYSTEM_CLOCK.time() + later[0]) as server:
        provide_admin(tmp_path, datetime.now(UTC) + timedelta(days=1) - LIFETIME)
        client = server.client("admin")
        await client.nodes.list()
        later[0] = timedelta(days=2).total_seconds()
        with pytest.raises(Unauthenticated, match="renew it"):
            await client.nodes.list()
        provide_admin(tmp_path, datetime.now(UTC))
        await client.nodes.list()


async def test_expiry_of_a_renewed_certificate_fails_no_call(tmp_path: Path) -> None:
    """The connection is older, and nothing has broken it: calls that are under way together move on to a new one."""
    later = [0.0]
    async with door(tmp_path, lambda: SYSTEM_CLOCK.time() + later[0]) as server:
        provide_admin(tmp_path, datetime.now(UTC) + timedelta(days=1) - LIFETIME)
        client = server.client("admin")
        await client.nodes.list()
        provide_admin(tmp_path, datetime.now(UTC))
        later[0] = timedelta(days=2).total_seconds()
        nodes = [make_node(f"n{number}").new() for number in range(20)]
        await asyncio.gather(*(client.nodes.create(node) for node in nodes), *(client.nodes.list() for _ in nodes))
        assert len((await client.nodes.list()).items) == len(nodes)


async def test_streams_end_with_the_certificate(tmp_path: Path) -> None:
    """Watches and sessions: who has a new certificate goes on with that."""
    later = [0.0]
    async with door(tmp_path, lambda: SYSTEM_CLOCK.time() + later[0]) as server, asyncio.timeout(PATIENCE):
        provide_admin(tmp_path, datetime.now(UTC) + timedelta(days=1) - LIFETIME)
        client, core = server.client("admin"), server.client("scheduler")
        watch, other = client.pods.watch(), core.pods.watch()
        assert (await anext(watch)).resource_version and (await anext(other)).resource_version
        session = await client.connection.duplex(HEARTBEAT_METHOD, HeartbeatRequest, HeartbeatResponse)
        await session.write(HeartbeatRequest(open=HeartbeatRequest.Open(holder="f")))
        assert (await session.read()) is not None
        later[0] = timedelta(days=2).total_seconds()
        for reading in (anext(watch), session.read()):
            with pytest.raises(Unauthenticated, match="renew it"):
                await reading
        assert (await anext(other)).resource_version


async def test_watches_end_with_the_token(tmp_path: Path) -> None:
    async with door(tmp_path) as server, asyncio.timeout(PATIENCE):
        await server.client("admin").of(ROLE_BINDINGS).create(_bound_to("eve", "view"))
        eve = server.connect(server.tokens_at, TlsFiles(tmp_path / "ca.crt", token="s3cret"))
        watch = eve.pods.watch("default")
        assert (await anext(watch)).resource_version
        (tmp_path / "tokens.csv").write_text("another,eve,1,\n")
        with pytest.raises(Unauthenticated, match="the bearer token is unknown"):
            await anext(watch)


def provide_admin(folder: Path, now: datetime) -> None:
    """A certificate made at that time, in place of the one that is there."""
    (folder / "admin.crt").unlink()
    PkiFolder(folder).provide([CertificateSpec("admin", Subject("kubernetes-admin", ("system:masters",)))], now)


def _bound_to(name: str, role: str) -> RoleBinding:
    """Lets somebody do what the role says in the namespace "default"."""
    binding = RoleBinding()
    binding.metadata.name = name
    binding.roleRef.kind, binding.roleRef.name = "ClusterRole", role
    binding.subjects.add(kind="User", name=name)
    return binding
