"""All that servers serve is behind one door: nothing is registered beside it, and it answers no caller without rights.

gRPC's reflection and health were registered beside the methods of the API, and passed by authentication, authorisation and flow
control: 6,000 streams of reflection of a user without roles ended a scheduler's term.
"""

import ast
import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from pinnace.api.verbs_pb2 import DeleteRequest
from pinnace.apiserver.auth.authentication import RequestAuthenticator, TokenFile
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.services import discovery
from pinnace.apiserver.services.handlers import MethodHandlers
from pinnace.apiserver.services.methods import MAX_REFLECTIONS
from pinnace.cluster import certificates
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime import grpc_server
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.tls import TlsFiles
from tests.storage.memory import MemoryStorage
from tests.unit.auth.test_matrix import OPEN

PATIENCE = 15.0
ROOT = Path(__file__).parents[3]
PRODUCT = ("apiserver", "scheduler", "kubelet", "controllers", "pinnace")
DOORS = {"apiserver/server.py", "kubelet/server.py"}
"""The modules that register something with a gRPC server."""
CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOT_SERVED = ("/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/List", "/pinnace.v1.Pods/NoSuch", "/a/b")
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class Server:
    """An API server with both of its ports. `registered`: what its gRPC servers serve."""

    def __init__(self, folder: Path, registered: list[object]) -> None:
        self.folder = folder
        self.registered = registered
        self.later = 0.0
        (folder / "tokens.csv").write_text("s3cret,nemo,1,\n")
        certificates.create_certificates(folder, ["127.0.0.1:1"], {})
        PkiFolder(folder).provide([CertificateSpec("nemo", Subject("nemo"))], datetime.now(UTC))
        authenticator = RequestAuthenticator(lambda: SYSTEM_CLOCK.time() + self.later, TokenFile(folder / "tokens.csv"))
        self._server = ApiServer(MemoryStorage(), authenticator)
        self.paths = sorted(self._server.methods)
        self.address = self.tokens_at = ""

    async def start(self) -> None:
        shown = certificates.component_files(self.folder, "apiserver")
        self.tokens_at = self._server.listen_for_tokens("127.0.0.1:0", shown)
        self.address = await self._server.start("127.0.0.1:0", shown)
        self._running = asyncio.ensure_future(self._server.run())
        async with asyncio.timeout(PATIENCE), self.connect("admin") as admin:
            while (await health(admin)).status != HealthCheckResponse.SERVING:
                pass

    def connect(self, name: str) -> grpc.aio.Channel:
        return channel(self.address, certificates.component_files(self.folder, name))

    async def stop(self) -> None:
        await self._server.stop()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


def channel(address: str, tls: TlsFiles) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(address, tls.read().for_channel(), options=OWN_CONNECTION)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What is registered with gRPC servers from now on, and by which means."""
    result, make = list[object](), grpc.aio.server

    def server(*arguments: object, **more: object) -> grpc.aio.Server:
        made = make(*arguments, **more)
        add = made.add_generic_rpc_handlers
        monkeypatch.setattr(made, "add_generic_rpc_handlers", lambda handlers: (result.extend(handlers), add(handlers)))
        monkeypatch.setattr(made, "add_registered_method_handlers", lambda *named: result.append(named))
        return made

    monkeypatch.setattr(grpc.aio, "server", server)
    yield result


@pytest.fixture
async def server(tmp_path: Path, registered: list[object], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(grpc_server, "RATE", 1e6)  # a few hundred refusals are wanted at once
    made = Server(tmp_path, registered)
    await made.start()
    yield made
    await made.stop()


async def health(to: grpc.aio.Channel, service: str = "") -> HealthCheckResponse:
    call = to.unary_unary(CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
    response: HealthCheckResponse = await call(HealthCheckRequest(service=service), timeout=PATIENCE)
    return response


async def code_of(to: grpc.aio.Channel, path: str, metadata: tuple[tuple[str, str], ...] = ()) -> str:
    """With which code a call ends, whose caller says nothing but an empty request. OK: it is answered."""
    call = to.unary_stream(path)(b"", metadata=metadata, timeout=PATIENCE)
    try:
        if await call.read() is not grpc.aio.EOF:
            call.cancel()
            return "OK"
    except grpc.aio.AioRpcError:
        pass
    code: grpc.StatusCode = await call.code()
    return code.name


async def codes(to: grpc.aio.Channel, paths: list[str], *metadata: tuple[str, str]) -> dict[str, str]:
    return {path: await code_of(to, path, metadata) for path in paths}


def test_servers_are_equipped_at_the_doors_only() -> None:
    """Whatever is added to a gRPC server elsewhere would be reached past its door."""
    result = set[str]()
    for package in PRODUCT:
        for file in (ROOT / package).rglob("*.py"):
            if not file.name.endswith(("_pb2_grpc.py", "_pb2.py")):
                for node in ast.walk(ast.parse(file.read_text())):
                    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
                    if name.startswith(("add_generic_rpc", "add_registered_method", "enable_server_reflection")) or (
                        name.startswith("add_") and name.endswith("_to_server")
                    ):
                        result.add(str(file.relative_to(ROOT)))
    assert result == DOORS


async def test_every_server_of_every_port_has_the_methods_and_nothing_else(server: Server) -> None:
    assert len(server.registered) == 8 + 2, "lines of the two ports"
    assert all(type(item) is MethodHandlers for item in server.registered)


async def test_caller_without_a_token_is_refused(server: Server) -> None:
    paths = [*server.paths, *NOT_SERVED]
    async with channel(server.tokens_at, TlsFiles(server.folder / "ca.crt")) as nobody:
        assert Counter((await codes(nobody, paths)).values()) == {"UNAUTHENTICATED": len(paths)}
        wrong = await codes(nobody, paths, ("authorization", "Bearer wrong"))
        assert Counter(wrong.values()) == {"UNAUTHENTICATED": len(paths)}


async def test_caller_without_a_certificate_of_the_authority_is_refused(server: Server, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    certificates.create_certificates(other, ["127.0.0.1:1"], {})
    strange = certificates.component_files(other, "admin")
    for tls in (TlsFiles(server.folder / "ca.crt"), TlsFiles(server.folder / "ca.crt", strange.cert, strange.key)):
        async with channel(server.address, tls) as nobody:
            assert await codes(nobody, [CHECK, REFLECTION, "/pinnace.v1.Pods/Get"]) == {
                CHECK: "UNAVAILABLE", REFLECTION: "UNAVAILABLE", "/pinnace.v1.Pods/Get": "UNAVAILABLE"
            }  # fmt: skip


async def test_caller_with_an_expired_certificate_is_refused(server: Server) -> None:
    paths = [*server.paths, *NOT_SERVED]
    async with server.connect("nemo") as nemo:
        server.later = 10 * 365 * 24 * 3600.0
        assert Counter((await codes(nemo, paths)).values()) == {"UNAUTHENTICATED": len(paths)}


@pytest.mark.parametrize("shown", ["certificate", "token"])
async def test_user_without_roles_is_denied_all_that_takes_one(server: Server, shown: str) -> None:
    paths = [path for path in server.paths if not path.removeprefix("/").removeprefix("pinnace.v1.").startswith(OPEN)]
    streams = {
        "/pinnace.v1.Calls/Exchange",  # its calls are checked
        "/pinnace.v1.Pods/Exec",
        "/pinnace.v1.Pods/PortForward",
        "/pinnace.v1.Nodes/Heartbeat",
        "/pinnace.v1.Elections/Campaign",
    }
    tls = certificates.component_files(server.folder, "nemo") if shown == "certificate" else TlsFiles(server.folder / "ca.crt")
    metadata = () if shown == "certificate" else (("authorization", "Bearer s3cret"),)
    async with channel(server.address if shown == "certificate" else server.tokens_at, tls) as nemo:
        result = await codes(nemo, paths, *metadata)
        assert {path: code for path, code in result.items() if code != "PERMISSION_DENIED"}.keys() <= {
            path for path in paths if path in streams or "Batch" in path or path.endswith("/Record")
        }, "what is about nothing is not permitted or denied"
        assert {result[path] for path in paths if result[path] != "PERMISSION_DENIED"} <= {"INVALID_ARGUMENT", "OK"}
        assert set((await codes(nemo, list(NOT_SERVED), *metadata)).values()) == {"UNIMPLEMENTED"}


async def test_health_and_reflection_take_their_permission(server: Server) -> None:
    """Every user has them by default, by system:public-info-viewer and system:discovery."""
    async with server.connect("nemo") as nemo:
        assert (await health(nemo)).status == HealthCheckResponse.SERVING
        assert (await health(nemo, "pinnace.v1.Pods")).status == HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health(nemo, "pinnace.v1.Nothing")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    async with server.connect("admin") as admin, server.connect("nemo") as nemo:
        for name in ("system:public-info-viewer", "system:discovery"):
            delete = DeleteRequest(name=name).SerializeToString()
            await admin.unary_unary("/pinnace.v1.ClusterRoleBindings/Delete")(delete, timeout=PATIENCE)
        assert await codes(nemo, [CHECK, REFLECTION]) == {CHECK: "PERMISSION_DENIED", REFLECTION: "PERMISSION_DENIED"}


async def test_methods_that_every_user_may_call_are_paced(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without roles that called for the version 4,000 times at once kept others waiting for more than a second."""
    waited = Counter[str]()

    async def wait(self: grpc_server.RefusalPacer, caller: str, size: int = 0, remaining: float | None = None) -> float:
        waited[caller] += 1
        return 0.0

    monkeypatch.setattr(grpc_server.RefusalPacer, "wait", wait)
    paths = [path for path in server.paths if path.removeprefix("/").removeprefix("pinnace.v1.").startswith(OPEN)]
    paths.remove("/pinnace.v1.Calls/Exchange")  # its calls are paced, and the number of its streams is limited
    async with server.connect("nemo") as nemo, server.connect("admin") as admin:
        assert len(paths) == 6
        assert "PERMISSION_DENIED" not in (await codes(nemo, paths)).values()
        assert waited == {"nemo": len(paths)}
        await codes(admin, ["/pinnace.v1.Pods/List", "/pinnace.v1.Nodes/Watch"])
        assert waited == {"nemo": len(paths)}


@asynccontextmanager
async def asking(to: grpc.aio.Channel) -> AsyncIterator[grpc.aio.StreamStreamCall]:
    call = to.stream_stream(
        REFLECTION, ServerReflectionRequest.SerializeToString, ServerReflectionResponse.FromString
    )(timeout=PATIENCE)  # fmt: skip
    yield call
    call.cancel()


async def test_reflection_names_the_services_and_their_files(server: Server) -> None:
    async with server.connect("nemo") as nemo, asking(nemo) as call:
        await call.write(ServerReflectionRequest(list_services=""))
        services = {item.name for item in (await call.read()).list_services_response.service}
        assert services == {path.split("/")[1] for path in server.paths}
        for service in services:
            await call.write(ServerReflectionRequest(file_containing_symbol=service))
            assert (await call.read()).file_descriptor_response.file_descriptor_proto
        await call.write(ServerReflectionRequest(file_containing_symbol="no.such.Thing"))
        assert (await call.read()).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        await call.write(ServerReflectionRequest())
        assert (await call.read()).error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


async def test_user_has_a_few_streams_of_reflection_each_for_a_while(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server.connect("nemo") as nemo, server.connect("scheduler") as other:
        open_ = [nemo.stream_stream(REFLECTION)(timeout=PATIENCE) for _ in range(MAX_REFLECTIONS)]
        for call in open_:
            await call.write(b"")
            assert await call.read() is not grpc.aio.EOF
        assert await code_of(nemo, REFLECTION) == "UNAVAILABLE"
        assert await code_of(other, REFLECTION) == "OK", "another user has its own"
        open_.pop().cancel()
        async with asyncio.timeout(PATIENCE):
            while await code_of(nemo, REFLECTION) != "OK":
                pass
        monkeypatch.setattr(discovery, "IDLE", 0.1)
        async with asking(nemo) as call:
            await call.write(ServerReflectionRequest(list_services=""))
            await call.read()
            with pytest.raises(grpc.aio.AioRpcError, match="no request within") as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
