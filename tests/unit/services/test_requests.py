"""The id of a call: in the answer, in the audit log, in the log, and in the client's error."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.wellknown import REQUEST_ID_KEY
from pinnace.apiserver.assembly import ServerSettings
from pinnace.apiserver.auth.audit import AuditLog
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.services import metrics
from pinnace.apiserver.services.calls import RequestIds
from pinnace.cli.errors import explain_error
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Internal, NotFound
from pinnace.runtime import logs
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage


@asynccontextmanager
async def serving(audit_log: Path) -> AsyncIterator[str]:
    """The address of a server. Afterwards the audit log is written."""
    audit = AuditLog(audit_log, metrics.AuditMeter())
    server = ApiServer(MemoryStorage(), settings=ServerSettings(audit=audit))
    at = await server.start("127.0.0.1:0")
    running = [asyncio.ensure_future(part.run()) for part in (server, audit)]
    try:
        yield at
    finally:
        await server.stop()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize(
    "sent", ["", "x" * 65, "two words", "line\nbreak", "-rf", "$(reboot)", "\x1b[2J", "ä"], ids=lambda sent: ascii(sent)[:12]
)
def test_invalid_request_id_is_replaced(sent: str) -> None:
    assert RequestIds("one").request_id_of([("user-agent", "x"), (REQUEST_ID_KEY, sent)]) == "one-1"


def test_each_call_has_its_own() -> None:
    ids = RequestIds("one")
    sent = [], [(REQUEST_ID_KEY, "4bf92f35-77b3")], [(REQUEST_ID_KEY, b"bytes")]
    assert [ids.request_id_of(item) for item in sent] == ["one-1", "4bf92f35-77b3", "one-2"]


async def test_answer_and_the_audit_log_have_it(tmp_path: Path) -> None:
    request = CreatePodRequest(object=make_pod("mine").req(cpu="1").new()).SerializeToString()
    async with serving(tmp_path / "audit") as address, grpc.aio.insecure_channel(address) as channel:
        connection = Connection([address])
        await Client(connection).pods.list()  # tries again until the server is ready
        await connection.close()
        create = channel.unary_unary("/pinnace.v1.Pods/Create")
        done = create(request, metadata=((REQUEST_ID_KEY, "mine-7"),))
        await done
        assert (REQUEST_ID_KEY, "mine-7") in list(await done.trailing_metadata())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await create(request)
        own = caught.value.trailing_metadata()[REQUEST_ID_KEY]
    result = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line["auditID"], line["responseStatus"]["status"]) for line in result] == [("mine-7", "Success"), (own, "Failure")]


async def test_bug_can_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: ResourceCache[Any], key: str) -> None:
        raise ZeroDivisionError

    logs.configure_logging("apiserver", form="json")
    async with serving(tmp_path / "audit") as address:
        connection = Connection([address])
        with pytest.raises(NotFound) as ordinary:
            await Client(connection).pods.get("no-such")
        monkeypatch.setattr(ResourceCache, "get", fail)
        with pytest.raises(Internal) as caught:
            await Client(connection).pods.get("no-such")
        await connection.close()
    bug = caught.value
    assert bug.request_id and bug.request_id != ordinary.value.request_id
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "ZeroDivisionError" in line]
    assert line["requestID"] == bug.request_id and line["severity"] == "ERROR" and "Traceback" in line["err"]
    report = explain_error(bug)
    assert report is not None and bug.request_id in report.hint
