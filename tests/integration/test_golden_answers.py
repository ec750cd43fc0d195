"""The recorded answers of kube-apiserver, replayed over HTTPS with a real etcd, an API server and a gateway."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from pinnace.cluster import certificates
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from tests import golden
from tests.conftest import EtcdServer, start_members
from tests.fuzz.http_run import gateway

TIMEOUT = ClientTimeout(total=30)


@pytest.fixture
async def new_etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    """An etcd of its own, because a watch starts at revision 1."""
    (server,) = await start_members(tmp_path, 1)
    yield server
    server.kill()


async def test_answers_over_https_match_kube_apiserver(new_etcd: EtcdServer, tmp_path: Path) -> None:
    async with gateway(tmp_path, new_etcd.endpoint) as target, ClientSession(timeout=TIMEOUT) as session:
        PkiFolder(target.pki).provide([CertificateSpec("golden", Subject("admin", ("system:masters",)))], datetime.now(UTC))
        files = certificates.component_files(target.pki, "golden")
        contexts = {False: target.context(None), True: target.context(None)}
        contexts[False].load_cert_chain(files.cert, files.key)

        async def send(method: str, path: str, content_type: str, accept: str, body: Any) -> golden.Answer:
            anonymous = accept.endswith(golden.ANONYMOUS)
            headers = {"Accept": accept.removesuffix(golden.ANONYMOUS), "User-Agent": golden.AGENT}
            if content_type:
                headers["Content-Type"] = content_type
            text = body if isinstance(body, str) or body is None else json.dumps(body)
            url = URL(f"https://127.0.0.1:{target.port}{path}", encoded=True)
            context = contexts[anonymous]
            async with session.request(method, url, data=text, headers=headers, ssl=context) as response:
                warnings = [json.loads(value.removeprefix("299 - ")) for value in response.headers.getall("Warning", [])]
                return golden.Answer(
                    response.status,
                    response.headers["Content-Type"],
                    await response.read(),
                    warnings,
                    response.headers.get("Retry-After"),
                )

        await golden.replay(send)
