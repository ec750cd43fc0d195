"""Webhooks over real gRPC: the example, TLS on both sides, and a server that is not there."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from examples.webhooks.house_rules import serve
from pinnace.api.admission_pb2 import AdmissionResponse, ReviewRequest, ReviewResponse
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.apiserver.webhooks.rpc import METHOD, GrpcWebhookTransport, load
from pinnace.apiserver.webhooks.webhook import WebhookConfiguration, WebhookError
from pinnace.cluster import certificates
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.tls import TlsFiles, server_credentials
from tests.builders import make_pod
from tests.unit.webhooks.test_admission import refused
from tests.unit.webhooks.world import FakeMeter, serving

EXAMPLE = Path(__file__).parents[3] / "examples/webhooks/house_rules.yaml"


@pytest.fixture
def house_rules(tmp_path: Path) -> Iterator[Path]:
    """The example's configuration, at the port where it is served."""
    server, port = serve("127.0.0.1:0")
    file = tmp_path / "house_rules.yaml"
    file.write_text(EXAMPLE.read_text().replace(":9443", f":{port}"))
    yield file
    server.stop(None).wait()


async def test_example(house_rules: Path) -> None:
    hooks = load(house_rules, None, FakeMeter())
    async with serving(*hooks) as server:
        ours = Namespace(metadata=ObjectMeta(name="kitchen", labels={"house": "ours"}))
        await server.call("Namespaces/Create", object=ours)
        created = await server.create(make_pod("a", namespace="kitchen").req(cpu="1").new())
        assert dict(created.metadata.labels) == {"team": "kitchen"}
        wrong = make_pod("b", namespace="kitchen").req(cpu="1").new()
        wrong.spec.containers[0].image = "app:latest"
        assert str(await refused(server.create(wrong))) == (
            'admission webhook "house-rules.example.com" denied the request: app:latest: use a tag other than latest'
        )
        elsewhere = await server.create(make_pod("c").req(cpu="1").new())
        assert not elsewhere.metadata.labels
    for hook in hooks:
        await hook.close()


@asynccontextmanager
async def behind_tls(files: TlsFiles) -> AsyncIterator[str]:
    """The address of a webhook that takes only those whom its authority knows, and allows everything."""

    async def review(request: ReviewRequest, context: object) -> ReviewResponse:
        return ReviewResponse(items=[AdmissionResponse(uid=item.uid, allowed=True) for item in request.items])

    service, _, method = METHOD[1:].partition("/")
    handler = grpc.unary_unary_rpc_method_handler(review, ReviewRequest.FromString, ReviewResponse.SerializeToString)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(files))
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_both_sides_show_a_certificate(tmp_path: Path) -> None:
    for name in ("cluster", "others"):
        certificates.create_certificates(tmp_path / name, ["127.0.0.1:1"], {})
    own, other = (certificates.component_files(tmp_path / name, "apiserver") for name in ("cluster", "others"))
    request = ReviewRequest()
    request.items.add(uid="1")
    async with behind_tls(own) as address:

        async def ask(shown: TlsFiles | None, ca: Path | None = None) -> ReviewResponse:
            configuration = WebhookConfiguration("a.example.com", address, frozenset(), tls=True, ca=ca)
            transport = GrpcWebhookTransport(configuration, shown)
            try:
                return await transport.review(request, 5.0)
            finally:
                await transport.close()

        assert (await ask(own)).items[0].allowed
        for shown, ca in ((other, None), (other, own.ca), (own, other.ca), (None, own.ca)):
            with pytest.raises(WebhookError, match="UNAVAILABLE"):
                await ask(shown, ca)


async def test_webhook_connection_refused() -> None:
    transport = GrpcWebhookTransport(WebhookConfiguration("a.example.com", "127.0.0.1:1", frozenset()), None)
    with pytest.raises(WebhookError, match="code UNAVAILABLE"):
        await transport.review(ReviewRequest(), 5.0)
    await transport.close()


async def test_answer_that_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """It is told by who asked, and by no traceback of gRPC's in the log."""

    async def review(request: bytes, context: object) -> bytes:
        return b"\xff"

    service, _, method = METHOD[1:].partition("/")
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(review)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    transport = GrpcWebhookTransport(WebhookConfiguration("a.example.com", f"127.0.0.1:{port}", frozenset()), None)
    with pytest.raises(WebhookError, match="the response is not a valid ReviewResponse"):
        await transport.review(ReviewRequest(), 5.0)
    await transport.close()
    await server.stop(None)
    assert not caplog.records


def test_webhook_certificate_untrusted(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXAMPLE.read_text().replace("grpc:", "grpcs:"))
    with pytest.raises(ConfigurationError, match=r"x.yaml: house-rules.example.com: clientConfig.caFile: required"):
        load(file, None, FakeMeter())
