"""An informer in 25 lines: list the pods, then watch; after a compaction, list again.

    python examples/informer.py

It prints each change of its store until it is interrupted. The components use `pinnace.client.informer`.
"""

import asyncio
import sys
from contextlib import suppress

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import store_key
from pinnace.api.verbs_pb2 import DELETED, WatchEventType
from pinnace.client.client import Client
from pinnace.client.config import ConfigError, load_config
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Expired


async def inform(client: Client, store: dict[str, Pod], revision: int = 0) -> None:
    """Keep the store equal to the pods of the cluster, until cancelled. At a revision of 0, the store is not filled yet."""
    while True:
        try:
            if not revision:
                snapshot = await client.pods.list()
                store.clear()
                store.update((store_key(pod), pod) for pod in snapshot.items)
                revision = snapshot.resource_version
                print(f"{revision} LIST {len(store)} pods", flush=True)
            async for batch in client.pods.watch(resource_version=revision, not_before=revision):
                for kind, pod in batch.events:
                    if kind == DELETED:
                        store.pop(store_key(pod), None)
                    else:
                        store[store_key(pod)] = pod
                    print(pod.metadata.resourceVersion, WatchEventType.Name(kind), store_key(pod), flush=True)
                revision = batch.resource_version or revision  # a batch without events is a bookmark
        except Expired as error:  # the changes after this revision are compacted: list again
            print(f"{revision} EXPIRED {error.message}", flush=True)
            revision = 0
        except ApiError as error:  # the server has gone: resume at another one, after the same revision
            print(f"{revision} LOST {error.message}", flush=True)
            await asyncio.sleep(1)


async def main() -> None:
    config = load_config()
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        await inform(Client(connection), {})
    finally:
        await connection.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(main())
        except ConfigError as error:
            sys.exit(f"error: {error}\nhint: {error.hint}")
