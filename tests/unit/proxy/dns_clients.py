"""Resolves names with glibc and with node's c-ares, in a network and a mount namespace of its own. Prints the results as JSON.

    unshare --map-root-user --net --mount python -m tests.unit.proxy.dns_clients OPTIONS NAME ...

OPTIONS are those of resolv.conf. Resolvers ask port 53 of the server in /etc/resolv.conf, so that both must be replaced.
"""

import asyncio
import fcntl
import json
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from pinnace.proxy.dns import DnsServer
from tests.unit.proxy.dns_objects import RESOLVER

SEARCH = "search default.svc.cluster.local svc.cluster.local cluster.local"
_GLIBC = """
import json, socket, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = sorted({each[4][0] for each in socket.getaddrinfo(name, None, socket.AF_INET)})
    except socket.gaierror as error:
        found[name] = error.args[0]
print(json.dumps(found))
"""
_C_ARES = """
const dns = require("dns").promises;
(async () => {
  const found = {};
  for (const name of process.argv.slice(1)) {
    try { found[name] = (await dns.resolve4(name)).sort(); } catch (error) { found[name] = error.code; }
  }
  console.log(JSON.stringify(found));
})();
"""
_SET_FLAGS, _UP = 0x8914, 1


def replace_resolver(options: str) -> None:
    """Start the loopback interface, and use its port 53."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:
        fcntl.ioctl(interface, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration:
        configuration.write(f"nameserver 127.0.0.1\n{SEARCH}\noptions timeout:2 attempts:1 {options}\n")
        configuration.flush()
        subprocess.run(["mount", "--bind", configuration.name, "/etc/resolv.conf"], check=True)


async def resolve(node: str, names: Sequence[str]) -> dict[str, object]:
    server = DnsServer(RESOLVER)
    await server.start("127.0.0.1", 53)
    result: dict[str, object] = {}
    try:
        commands = {"glibc": [sys.executable, "-c", _GLIBC]} | ({"c-ares": [node, "-e", _C_ARES]} if node else {})
        for client, command in commands.items():
            process = await asyncio.create_subprocess_exec(*command, *names, stdout=subprocess.PIPE)
            output, _ = await asyncio.wait_for(process.communicate(), 50)
            result[client] = json.loads(output)
    finally:
        server.stop()
    return result


def main(options: str, node: str, *names: str) -> None:
    replace_resolver(options)
    print(json.dumps(asyncio.run(resolve(node, names))))


if __name__ == "__main__":
    main(*sys.argv[1:])
