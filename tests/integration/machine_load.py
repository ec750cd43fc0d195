"""Creates a pod every 50 ms and notes when each is bound, until SIGTERM; then prints JSON. Run in a namespace of machines.py.

{"created": {name: seconds}, "bound": {name: seconds}, "errors": [...]}      seconds: of time.monotonic(), which all share
"""

import asyncio
import json
import signal
import time
from itertools import count

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.config import load_config
from pinnace.client.connection import Connection
from pinnace.client.errors import AlreadyExists, ApiError
from pinnace.client.informer import Delta, Informer
from tests.builders import make_pod

PAUSE = 0.05
created: dict[str, float] = {}
bound: dict[str, float] = {}
errors: list[str] = []


def note_binds(deltas: "list[Delta[Pod]]") -> None:
    now = time.monotonic()
    for delta in deltas:
        if delta.obj.spec.nodeName:
            bound.setdefault(delta.obj.metadata.name, now)


async def create_pods(client: Client) -> None:
    for number in count():
        name = f"load-{number}"
        while True:
            try:
                await client.pods.create(make_pod(name).req(cpu="1m").new())
            except AlreadyExists:  # the outcome of the call before was unknown
                pass
            except ApiError as error:
                errors.append(f"{time.monotonic():.2f} {error}")
                await asyncio.sleep(PAUSE)
                continue
            created[name] = time.monotonic()
            break
        await asyncio.sleep(PAUSE)


async def main() -> None:
    config, ended = load_config(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    connection = Connection(config.endpoints, tls=config.tls)
    client = Client(connection)
    informer = Informer(client.pods)
    informer.add_handler(note_binds)
    tasks = [asyncio.ensure_future(work) for work in (informer.run(), create_pods(client))]
    await ended.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await connection.close()
    print(json.dumps({"created": created, "bound": bound, "errors": errors}))


asyncio.run(main())
