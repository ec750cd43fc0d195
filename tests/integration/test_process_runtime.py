"""The process runtime in a cluster: a real page, served through a crash and a restart of the kubelet, with its logs."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import ExecRequest, ExecStart
from pinnace.api.quantity import parse
from pinnace.client.client import Client
from tests.builders import make_pod
from tests.conftest import free_port
from tests.integration.conftest import Start
from tests.integration.processes import Component, log_of
from tests.integration.test_kubelet import eventually, until

PAGE = """
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"pid {os.getpid()} of {os.environ['POD_NAME']}".encode())
    def log_message(self, *_): pass
print("serving as", os.getpid(), flush=True)
http.server.HTTPServer((os.environ["POD_IP"], 8080), Page).serve_forever()
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for pods, of which nothing runs after the test."""
    folder = tmp_path / "kubelet"
    yield folder
    subprocess.run([sys.executable, "-m", "pinnace.kubelet.runtime.process.root", folder], check=True, timeout=20)


def web(index: int) -> Pod:
    pod = make_pod("web").container().node(f"node-{index}").new()
    container = pod.spec.containers[0]
    container.command[:] = [sys.executable, "-S", "-c", PAGE]
    container.env.add(name="POD_NAME").valueFrom.fieldRef.fieldPath = "metadata.name"
    return pod


def page(pod: Pod) -> str:
    try:
        with urllib.request.urlopen(f"http://{pod.status.podIP}:8080/", timeout=2) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


async def serving(pod: Pod, other_than: str = "") -> str:
    """Waits for the page: what it says."""
    await eventually(lambda: page(pod) not in ("", other_than))
    return page(pod)


async def test_page_is_served_through_a_crash_and_a_restart_of_the_kubelet(
    root: Path, apiserver: Component, client: Client, start: Start
) -> None:
    index = free_port()  # the pod's address follows from it: no other test's

    def kubelet() -> Component:
        return start(
            "kubelet", "fleet", "--server", apiserver.address, "--nodes", "1", "--node-prefix", "node-",
            "--first-index", str(index),
            "--runtime", "process", "--root-dir", str(root), "--listen", "127.0.0.1:0",
        )  # fmt: skip

    first = kubelet()
    await first.ready()
    await client.pods.create(web(index))
    pods = await until(client.pods, lambda pods: pods["web"].status.phase == "Running" if "web" in pods else False)
    before = await serving(pods["web"])
    (used,) = (await client.usage.pods("default")).items
    assert parse(used.containers[0].usage["memory"].string) > 1 << 20
    followed = asyncio.create_task(log_of(client, "web", follow=True))

    os.kill(pid_of(before), signal.SIGKILL)
    after = await serving(pods["web"], other_than=before)
    async with asyncio.timeout(10):
        assert await followed == f"serving as {pid_of(before)}\n", "the end of its container ends the log"
    pods = await until(client.pods, lambda pods: pods["web"].status.containerStatuses[0].restartCount == 1)
    assert pods["web"].status.containerStatuses[0].lastState.terminated.exitCode == 137

    first.kill()
    second = kubelet()
    await second.ready()
    assert page(pods["web"]) == after, "the same process goes on"
    assert await log_of(client, "web", previous=True) == f"serving as {pid_of(before)}\n"
    stream = await client.pods.exec()
    command = ["sh", "-c", "cat; echo $POD_NAME; exit 3"]
    await stream.write(ExecRequest(start=ExecStart(namespace="default", name="web", command=command, stdin=True)))
    await stream.write(ExecRequest(stdin=b"in "))
    await stream.write(ExecRequest(closeStdin=True))
    said = b""
    while (response := await stream.read()) is not None and not response.HasField("exit"):
        said += response.stdout
    assert response is not None and (said, response.exit.code) == (b"in web\n", 3)

    await client.pods.delete("web", "default")
    await until(client.pods, lambda pods: not pods)
    await eventually(lambda: page(pods["web"]) == "")


def pid_of(text: str) -> int:
    match = re.search(r"pid (\d+)", text)
    assert match is not None
    return int(match[1])
