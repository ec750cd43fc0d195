"""A decoded watch of etcd: each write to a pod or to an election, in the order of revisions.

    python examples/etcd_watch.py [PREFIX]...

It reads through the API servers' Keys service, until it is interrupted. `pinnace etcd watch` does the same with more options.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.keys_pb2 import KeyVersion, WatchKeysRequest, WatchKeysResponse
from pinnace.api.resources import ELECTIONS_PREFIX, PODS
from pinnace.client.config import ConfigError, load_config
from pinnace.client.connection import Connection


def decoded(change: KeyVersion) -> str:
    """Describe a write: the node and phase of a pod, or the holder of an election."""
    if change.key.startswith(PODS.prefix):
        pod = Pod.FromString(change.value)
        return f"node={pod.spec.nodeName or '-'} phase={pod.status.phase or '-'}"
    if change.key.startswith(ELECTIONS_PREFIX):
        return f"holder={Election.FromString(change.value).holder} lease={change.lease:x}"
    return f"{change.size} bytes"


async def watch(connection: Connection, prefixes: Sequence[str]) -> None:
    """Print the changes until the stream ends. Raises ApiError."""
    request = WatchKeysRequest(prefixes=prefixes)
    stream = await connection.stream("/pinnace.v1.Keys/Watch", request, WatchKeysResponse)
    try:
        while (response := await stream.read(15.0)) is not None:
            for change in response.changes:
                what = "DELETE" if change.deleted else f"PUT {decoded(change)}"
                print(change.mod_revision, change.key, what, flush=True)
    finally:
        stream.cancel()


async def main() -> None:
    config = load_config()
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        await watch(connection, sys.argv[1:] or [PODS.prefix, ELECTIONS_PREFIX])
    finally:
        await connection.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(main())
        except ConfigError as error:
            sys.exit(f"error: {error}\nhint: {error.hint}")
