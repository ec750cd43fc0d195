"""kubectl and simulated containers: every verb of a demo answers."""

import json
import os
import pty
import select
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.clients.conftest import TIMEOUT, Kubectl

pytestmark = pytest.mark.clients


@pytest.fixture
def web(kubectl: Kubectl) -> str:
    """The name of the pod of a deployment `web`, which is made as in tutorials."""
    kubectl("create", "deployment", "web", "--image=nginx:1.27")
    kubectl("expose", "deployment", "web", "--port=80")
    kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=40s")
    return kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")


@pytest.fixture
def forwarded(kubectl: Kubectl, web: str) -> Iterator[int]:
    """The local port of the service `web`."""
    with kubectl.background("port-forward", "service/web", ":80") as forwarding:
        assert forwarding.stdout is not None
        yield int(forwarding.stdout.readline().split(":")[1].split()[0])


def test_logs(kubectl: Kubectl, web: str) -> None:
    lines = kubectl("logs", "deployment/web").splitlines()
    assert lines[0] == f"container nginx of pod {kubectl.namespace}/{web} started (image nginx:1.27)"
    assert kubectl("logs", web).splitlines()[: len(lines)] == lines, "the same lines on each request"
    last = kubectl("logs", web, "--tail=1", "--timestamps", "--all-containers")
    assert last.startswith("20") and last.count("\n") == 1 and last[31:] in kubectl("logs", web)
    assert kubectl("logs", web, "--limit-bytes=9") == "container"
    assert kubectl("logs", web, "--since=1h").splitlines()[: len(lines)] == lines
    assert f'previous terminated container "nginx" in pod "{web}" not found' in kubectl("logs", "-p", web, fails=True)
    with kubectl.background("logs", "-f", web) as following:
        assert following.stdout is not None and following.stdout.readline() == f"{lines[0]}\n"
        kubectl("delete", "deployment", "web")
        kubectl("wait", "--for=delete", f"pod/{web}", "--timeout=40s")
        following.communicate(timeout=TIMEOUT)
    assert following.returncode == 0, "it ends with the pod"


def test_exec(kubectl: Kubectl, web: str) -> None:
    assert kubectl("exec", "deployment/web", "--", "hostname") == f"{web}\n"
    ran = kubectl.run("exec", web, "--", "sh", "-c", 'echo "$HOSTNAME" && foo; exit 7')
    assert (ran.code, ran.out) == (7, f"{web}\n") and ran.err.startswith("sh: foo: not found\n")
    ran = kubectl.run("exec", web, "--", "no-such-program")
    assert ran.code == 127 and '"no-such-program": executable file not found in $PATH' in ran.err
    assert kubectl("exec", "-i", web, "--", "sh", stdin="cd /etc\ncat hostname\n") == f"{web}\n"
    ran = kubectl.run("cp", f"{web}:/etc/hosts", "hosts")
    assert ran.code == 1 and "simulated containers have no files to copy" in ran.out + ran.err


def test_shell_in_a_terminal(kubectl: Kubectl, web: str) -> None:
    with Terminal(kubectl, "exec", "-it", web, "--", "sh") as terminal:
        terminal.read_until(b"/ # ")
        terminal.write(b"hostname\r")
        terminal.read_until(f"{web}\r\n/ # ".encode())
        terminal.write(b"sleep 1000\r")
        terminal.read_until(b"sleep 1000\r\n")
        terminal.write(b"\x03")
        terminal.read_until(b"/ # ")
        terminal.write(b"exit 3\r")
        assert terminal.wait() == 3


def test_port_forward(forwarded: int, web: str) -> None:
    connection = HTTPConnection("127.0.0.1", forwarded, timeout=TIMEOUT)
    for path in ("/a", "/b"):
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        assert f"pod:       {web}\n" in text and f"request:   GET {path}\n" in text and "image:     nginx:1.27\n" in text
    connection.close()
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{forwarded}/", data=json.dumps({}).encode(), timeout=TIMEOUT)


class Terminal:
    """kubectl in a terminal of its own."""

    def __init__(self, kubectl: Kubectl, *arguments: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            kubectl.replace_process(*arguments)
        self._ended = False

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def write(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def read_until(self, end: bytes) -> None:
        text, deadline = b"", time.monotonic() + TIMEOUT
        while end not in text:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {end!r} in {text!r}"
            text += os.read(self._terminal, 4096)

    def wait(self) -> int:
        """The exit code."""
        try:
            while os.read(self._terminal, 4096):
                pass
        except OSError:  # the end of a terminal
            pass
        self._ended = True
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
