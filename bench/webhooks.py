"""What a bad webhook costs other users: the time of creates of another kind, and the CPU of the API server.

    python -m bench.webhooks [--seconds 5] [--only hang]

Each row has a cluster of its own, with one API server. A webhook reviews ConfigMaps. Eight clients create them in a loop, in a
process of their own. Meanwhile another client creates Leases, which no webhook reviews, one after the other. The
row "none" has no webhook, and "good" one that allows.
"""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import time
from typing import Any

import aiohttp
import click
from rich.console import Console
from rich.table import Table

from pinnace.runtime import procfs
from pinnace.testing import sessions
from pinnace.testing.handle import PinnaceCluster
from pinnace.verification.bench.report import percentile
from tests.webhook_server import BAD

CLIENTS = 8
PAUSE = 0.01
WEBHOOK_TIMEOUT = 2
SETTLE = 1.0
"""Seconds between the start of the clients and the first measurement."""
PLACES = {"refused": "https://127.0.0.1:1/x", "no such name": "https://no.such.invalid/x"}
ROWS = ("none", "good", "slow", *BAD, *PLACES)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Api:
    """Requests as an administrator."""

    def __init__(self, session: aiohttp.ClientSession, cluster: dict[str, str]) -> None:
        self._session, self._server = session, cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["ca"])
        self._tls.load_cert_chain(cluster["cert"], cluster["key"])

    async def create(self, path: str, document: dict[str, Any]) -> int:
        """Return the status code."""
        async with self._session.post(self._server + path, json=document, ssl=self._tls) as response:
            await response.read()
            return response.status


async def attack(cluster: dict[str, str]) -> None:
    """Create ConfigMaps until this process is killed."""
    async with aiohttp.ClientSession() as session:
        api = Api(session, cluster)

        async def create(number: int) -> None:
            count = 0
            while True:
                count += 1
                await api.create(CONFIG_MAPS, {"metadata": {"name": f"a-{number}-{count}"}})

        await asyncio.gather(*(create(number) for number in range(CLIENTS)))


def describe_webhook(row: str, port: int) -> dict[str, Any]:
    certificate = ssl.get_server_certificate(("127.0.0.1", port)).encode()
    config = {"url": f"https://127.0.0.1:{port}/{row}", "caBundle": base64.b64encode(certificate).decode()}
    webhook = {
        "name": "w.example.com",
        "clientConfig": {"url": PLACES[row]} if row in PLACES else config,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": WEBHOOK_TIMEOUT,
    }
    return {"metadata": {"name": "w"}, "webhooks": [webhook]}


async def measure(row: str, cluster: PinnaceCluster, port: int, seconds: float) -> tuple[list[float], float]:
    """Return the seconds of each create of a Lease, ascending, and the CPU of the API server in seconds per second."""
    reach = {name: str(getattr(cluster, name)) for name in ("server", "ca", "cert", "key")}
    process = procfs.identify_process(cluster.processes["apiserver-0"])
    assert process is not None
    async with aiohttp.ClientSession() as session:
        api = Api(session, reach)
        if row != "none":
            assert await api.create(CONFIGURATIONS, describe_webhook(row, port)) == 201
        command = (sys.executable, "-m", "bench.webhooks", "--attack", json.dumps(reach))
        attackers = await asyncio.create_subprocess_exec(*command)
        try:
            await asyncio.sleep(SETTLE)
            times, began, before = list[float](), time.monotonic(), read_cpu(process)
            while (now := time.monotonic()) < began + seconds:
                assert await api.create(LEASES, {"metadata": {"name": f"lease-{len(times)}"}}) == 201
                times.append(time.monotonic() - now)
                await asyncio.sleep(PAUSE)
            cpu = (read_cpu(process) - before) / (time.monotonic() - began)
        finally:
            attackers.kill()
            await attackers.wait()
    return sorted(times), cpu


def read_cpu(process: procfs.ProcessIdentity) -> float:
    usage = procfs.read_usage(process)
    assert usage is not None
    return usage.cpu_s


@click.command()
@click.option("--seconds", type=float, default=5.0, show_default=True, help="Duration of each row.")
@click.option("--only", type=click.Choice(ROWS), multiple=True, help="Measure these rows. May be repeated.")
@click.option("--attack", "attacked", hidden=True)
def main(seconds: float, only: tuple[str, ...], attacked: str | None) -> None:
    """Measure what a bad webhook costs other users."""
    if attacked is not None:
        asyncio.run(attack(json.loads(attacked)))
    console = Console(width=100)
    table = Table("webhook", "creates", "p50, ms", "p99, ms", "CPU of the API server, %", "load average")
    command = [sys.executable, "-m", "tests.webhook_server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as hooks:  # its errors are those of connections that the API server has closed
        assert hooks.stdout is not None
        port = int(hooks.stdout.readline())
        for row in only or ROWS:
            session = sessions.start_session(sessions.ClusterOptions(), sessions.new_folder(None), os.getpid())
            try:
                times, cpu = asyncio.run(measure(row, session.cluster, port, seconds))
            finally:
                session.stop()
            p50, p99 = (f"{percentile(times, fraction) * 1000:.1f}" for fraction in (0.5, 0.99))
            table.add_row(row, str(len(times)), p50, p99, f"{cpu * 100:.0f}", f"{os.getloadavg()[0]:.1f}")
        hooks.kill()
    console.print(table)


if __name__ == "__main__":
    main()
