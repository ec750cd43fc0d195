"""Logs, exec and stats between an API server and a kubelet, over real gRPC on loopback."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import grpc.aio
import pytest

from pinnace.api import kubelet_pb2
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.pods_pb2 import ExecExit, ExecRequest, ExecResponse, ExecStart, LogsRequest, LogsResponse
from pinnace.api.status import Code, Refusal
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services import kubelets
from pinnace.apiserver.services.kubelets import GrpcKubelets, KubeletEndpoint
from pinnace.cluster import certificates
from pinnace.kubelet.runtime.interface import StreamError, Streams
from pinnace.kubelet.server import SERVICE, KubeletServer
from pinnace.pki.authority import SERVER_NAME
from pinnace.pki.folder import ADMIN, KUBELET_CLIENT
from pinnace.runtime.tls import TlsFiles
from tests.conftest import free_port

TIMEOUT = 10.0


class Echo:
    """Streams that echo the request. `left` is set when a stream ends. It may be set while the client still reads, because
    the client can have read data whose sending gRPC has not reported yet.
    """

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        if not request.uid:
            raise StreamError(Code.INVALID_ARGUMENT, "which pod?")
        try:
            yield request.options.container.encode()
            if request.options.follow:
                await asyncio.Event().wait()
        finally:
            self.left.set()

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        try:
            async for data in stdin:
                yield ExecResponse(stdout=data)
            yield ExecResponse(exit=ExecExit(code=len(start.command)))
        finally:
            self.left.set()


class Refusing(Echo):
    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        raise StreamError(Code.FAILED_PRECONDITION, "there are no logs here")
        yield b""


class Counting:
    """Statistics of all requested pods. A request without pods is never answered."""

    async def answer_stats_request(self, request: StatsRequest) -> StatsResponse:
        if not request.pods:
            await asyncio.Event().wait()
        response = StatsResponse()
        for uid in request.pods:
            response.pods.add().metadata.uid = uid
        return response


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    certificates.create_certificates(folder, ["127.0.0.1:7443"], {"fleet": ["fleet-*"]})
    return folder


class Serving:
    def __init__(self, streams: Streams, tls: TlsFiles | None) -> None:
        self._server = KubeletServer(streams, tls)

    async def __aenter__(self) -> KubeletEndpoint:
        endpoint = self._server.bind("127.0.0.1", 0)
        await self._server.start(Counting)
        return KubeletEndpoint("n", endpoint.host, endpoint.port)

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()


async def read(client: GrpcKubelets, at: KubeletEndpoint, request: LogsRequest) -> bytes:
    async with asyncio.timeout(TIMEOUT):
        return b"".join([LogsResponse.FromString(log).data async for log in client.logs(at, request)])


def asked(container: str = "c", follow: bool = False) -> LogsRequest:
    request = LogsRequest(uid="u")
    request.options.container, request.options.follow = container, follow
    return request


async def refusal(client: GrpcKubelets, at: KubeletEndpoint, request: LogsRequest) -> tuple[Code, str]:
    result = await whole_refusal(client, at, request)
    return result.code, result.message


async def whole_refusal(client: GrpcKubelets, at: KubeletEndpoint, request: LogsRequest) -> Refusal:
    with pytest.raises(Rejected) as caught:
        await read(client, at, request)
    return caught.value.refusal


async def test_only_api_servers_can_read_logs(pki: Path) -> None:
    async with Serving(Echo(), certificates.component_files(pki, "fleet")) as at:
        assert await read(GrpcKubelets(certificates.component_files(pki, KUBELET_CLIENT)), at, asked("web")) == b"web"
        for other in (ADMIN, "fleet"):
            code, message = await refusal(GrpcKubelets(certificates.component_files(pki, other)), at, asked())
            assert (code, "call an API server" in message) == (Code.PERMISSION_DENIED, True)


async def test_every_method_rejects_other_clients(pki: Path) -> None:
    """This includes unknown methods and methods that API servers do not call. Each call is rejected before its request is
    read.
    """
    methods = [method.name for method in kubelet_pb2.DESCRIPTOR.services_by_name["Kubelet"].methods]
    paths = [*(f"/{SERVICE}/{name}" for name in methods), "/a/b", "/grpc.health.v1.Health/Check"]
    options = (("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1))
    async with Serving(Echo(), certificates.component_files(pki, "fleet")) as at:
        for name, known, unknown in ((ADMIN, *["PERMISSION_DENIED"] * 2), (KUBELET_CLIENT, "", "UNIMPLEMENTED")):
            credentials = certificates.component_files(pki, name).read().for_channel()
            async with grpc.aio.secure_channel(f"127.0.0.1:{at.port}", credentials, options=options) as channel:
                for path in paths:
                    call = channel.stream_stream(path)(timeout=TIMEOUT)
                    expected = known if path.startswith(f"/{SERVICE}") else unknown
                    if expected:
                        assert (await call.code()).name == expected, path
                    call.cancel()


async def test_half_replaced_key_pair_does_not_break_kubelet_calls(pki: Path, tmp_path: Path) -> None:
    files = certificates.component_files(shutil.copytree(pki, tmp_path / "pki"), KUBELET_CLIENT)
    async with Serving(Echo(), certificates.component_files(pki, "fleet")) as at:
        client = GrpcKubelets(files)
        assert files.key is not None
        files.key.write_text("")
        assert await read(client, at, asked("web")) == b"web"


async def test_only_api_servers_can_read_stats(pki: Path) -> None:
    async with Serving(Echo(), certificates.component_files(pki, "fleet")) as at:
        request = StatsRequest(pods=[f"{number:036}" for number in range(100_000)])  # close to the default limit of gRPC
        answer = await GrpcKubelets(certificates.component_files(pki, KUBELET_CLIENT)).stats(at, request, TIMEOUT)
        assert [pod.metadata.uid for pod in answer.pods] == list(request.pods)
        with pytest.raises(Rejected) as caught:
            await GrpcKubelets(certificates.component_files(pki, ADMIN)).stats(at, request, TIMEOUT)
        assert caught.value.refusal.code is Code.PERMISSION_DENIED


async def test_stats_call_without_an_answer_is_unavailable() -> None:
    async with Serving(Echo(), None) as at:
        with pytest.raises(Rejected) as caught:
            await GrpcKubelets(None).stats(at, StatsRequest(), 0.1)
        assert caught.value.refusal.code is Code.UNAVAILABLE


async def test_server_calls_only_kubelets(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, an API server's certificate is not accepted as a kubelet's."""
    monkeypatch.setattr(kubelets, "CONNECT_TIMEOUT", 0.3)
    async with Serving(Echo(), certificates.component_files(pki, "apiserver")) as at:
        code, _ = await refusal(GrpcKubelets(certificates.component_files(pki, KUBELET_CLIENT)), at, asked())
        assert code is Code.UNAVAILABLE


async def test_without_certificates_only_loopback_is_served() -> None:
    with pytest.raises(OSError, match="without certificates, only loopback addresses"):
        KubeletServer(Refusing(), None).bind("0.0.0.0", 0)


async def test_missing_kubelet_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelets, "CONNECT_TIMEOUT", 0.3)
    code, message = await refusal(GrpcKubelets(None), KubeletEndpoint("n", "127.0.0.1", free_port()), asked())
    assert (code, 'the kubelet of node "n"' in message) == (Code.UNAVAILABLE, True)


async def test_kubelet_error_is_passed_on_unchanged() -> None:
    async with Serving(Echo(), None) as at:
        assert await refusal(GrpcKubelets(None), at, LogsRequest()) == (Code.INVALID_ARGUMENT, "which pod?")
    async with Serving(Refusing(), None) as at:
        code, message = await refusal(GrpcKubelets(None), at, asked())
        assert (code, "there are no logs here" in message) == (Code.FAILED_PRECONDITION, True)


async def test_error_reason_is_the_reason_of_kubernetes_for_its_code() -> None:
    async with Serving(Echo(), None) as at:
        assert (await whole_refusal(GrpcKubelets(None), at, LogsRequest())).reason == "BadRequest"
    async with Serving(Refusing(), None) as at:
        assert (await whole_refusal(GrpcKubelets(None), at, asked())).reason == "MethodNotAllowed"


async def test_stopping_kubelet_ends_its_streams() -> None:
    async with Serving(Echo(), None) as at:
        following = GrpcKubelets(None).logs(at, asked(follow=True))
        await anext(following)
    with pytest.raises(Rejected) as caught:
        async with asyncio.timeout(TIMEOUT):
            await anext(following)
    assert caught.value.refusal.code is Code.UNAVAILABLE


async def test_cancelled_call_cancels_the_kubelet_call() -> None:
    echo = Echo()
    async with Serving(echo, None) as at:
        async with aclosing(GrpcKubelets(None).logs(at, asked(follow=True))) as following:
            await anext(following)
        async with asyncio.timeout(TIMEOUT):
            await echo.left.wait()


class Brief(Echo):
    """A command that ends after its first input, with much output."""

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        await anext(stdin)
        for _ in range(200):
            yield ExecResponse(stdout=b"x" * 16_000)
        yield ExecResponse(exit=ExecExit(code=7))


async def test_command_that_ends_before_its_input_loses_no_output() -> None:
    async def requests() -> AsyncIterator[ExecRequest]:
        yield ExecRequest(start=ExecStart(command=["head"], stdin=True))
        while True:
            yield ExecRequest(stdin=b"y" * 1000)

    read, code = 0, 0
    async with (
        Serving(Brief(), None) as at,
        asyncio.timeout(TIMEOUT),
        aclosing(GrpcKubelets(None).exec(at, requests())) as result,
    ):
        async for data in result:
            response = ExecResponse.FromString(data)
            read, code = read + len(response.stdout), response.exit.code
            if response.HasField("exit"):
                break
    assert (read, code) == (3_200_000, 7)


async def test_command_receives_its_input_until_eof() -> None:
    async def requests() -> AsyncIterator[ExecRequest]:
        yield ExecRequest(start=ExecStart(command=["a", "b", "c"], stdin=True))
        yield ExecRequest(stdin=b"one")
        yield ExecRequest(stdin=b"two")
        yield ExecRequest(closeStdin=True)

    async with Serving(Echo(), None) as at, asyncio.timeout(TIMEOUT):
        responses = [ExecResponse.FromString(item) async for item in GrpcKubelets(None).exec(at, requests())]
    assert [response.stdout for response in responses] == [b"one", b"two", b""]
    assert responses[-1].exit.code == 3
