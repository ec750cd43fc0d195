"""Custom kinds on a cluster of several API servers and gateways: a kind appears while clients watch others, each of them
is killed or rolled while objects are written, and no watch misses a change."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import StartFailed
from pinnace.cluster.spec import GATEWAY, ClusterSpec
from tests.unit.gateway.test_custom_resources import DEFINITIONS, make_definition, make_version, path_of, widget

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]
WATCHES = 50
WITHIN = 30.0
RESTARTED = ("apiserver-0", "gateway-0", "apiserver-1", "gateway-1")
"""The first of each kind is killed, the other one ends by SIGTERM."""


class Api:
    """The API at all gateways."""

    def __init__(self, session: ClientSession, addresses: list[str]) -> None:
        self.session, self.addresses = session, addresses

    async def request(self, method: str, path: str, body: Any = None, gateway: int = 0) -> tuple[int, Any]:
        """Call a gateway. The code is 0 if it does not answer; then the second value is the error."""
        try:
            async with self.session.request(method, f"https://{self.addresses[gateway]}{path}", json=body) as response:
                is_json = response.content_type == "application/json"
                return response.status, await (response.json() if is_json else response.text())
        except (ClientError, TimeoutError) as error:
            return 0, repr(error)

    async def until(self, code: int, method: str, path: str, body: Any = None, gateway: int = 0) -> Any:
        """Repeat a call until it has this code."""
        deadline = time.monotonic() + WITHIN
        while (answer := await self.request(method, path, body, gateway))[0] != code:
            assert time.monotonic() < deadline, f"{method} {path} of gateway {gateway}: {answer}"
            await asyncio.sleep(0.05)
        return answer[1]

    async def follow(self, path: str, gateway: int, seen: dict[str, int], began: asyncio.Event) -> None:
        """List and watch like an informer, until cancelled. `seen`: names and their last values."""
        version = ""
        while True:
            with suppress(ClientError, TimeoutError, ConnectionError):
                url = f"https://{self.addresses[gateway]}{path}"
                if not version:
                    code, page = await self.request("GET", path, gateway=gateway)
                    if code != 200:
                        await asyncio.sleep(0.05)
                        continue
                    version = page["metadata"]["resourceVersion"]
                    seen |= {item["metadata"]["name"]: item.get("spec", {}).get("size", 0) for item in page["items"]}
                began.set()
                async with self.session.get(url, params={"watch": "1", "resourceVersion": version}) as response:
                    if response.status != 200:
                        version = ""
                    async for line in response.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            version = ""
                            break
                        obj = event["object"]
                        version = obj["metadata"]["resourceVersion"]
                        if event["type"] == "DELETED":
                            seen.pop(obj["metadata"]["name"], None)
                        else:
                            seen[obj["metadata"]["name"]] = obj.get("spec", {}).get("size", 0)
            gateway = (gateway + 1) % len(self.addresses)
            await asyncio.sleep(0.05)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(ClusterSpec(nodes=1, kubelets=1, schedulers=1, apiservers=2, gateways=2, data_dir=tmp_path / "cluster"))
    await cluster.up()
    yield cluster
    await cluster.down()


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    addresses = [record.plan.address for record in cluster.state.processes_of(GATEWAY)]
    connector = TCPConnector(ssl=cluster.tls.create_ssl_context(), limit=0)
    async with ClientSession(connector=connector, timeout=ClientTimeout(None, sock_connect=2, sock_read=10)) as session:
        yield Api(session, addresses)


async def restart(cluster: Cluster, name: str, number: signal.Signals) -> None:
    cluster.kill(name, number)
    async with asyncio.timeout(WITHIN):
        while cluster.pid(name):  # noqa: ASYNC110 (another process: there is no event to wait for)
            await asyncio.sleep(0.01)
        while True:
            try:
                return await cluster.start(name)
            except StartFailed:  # the threads of a killed process hold its port for a moment
                await asyncio.sleep(0.1)


async def test_kinds_appear_and_survive_while_processes_end(cluster: Cluster, api: Api) -> None:
    configs = "/api/v1/namespaces/default/configmaps"
    followed = [(dict[str, int](), asyncio.Event()) for _ in range(WATCHES)]
    tasks = [asyncio.create_task(api.follow(configs, number % 2, seen, began)) for number, (seen, began) in enumerate(followed)]
    try:
        for _, began in followed:
            await asyncio.wait_for(began.wait(), WITHIN)
        started = time.monotonic()
        definition = make_definition(make_version(subresources={"status": {}}))
        assert (await api.request("POST", DEFINITIONS, definition))[0] == 201
        for number in range(2):
            await api.until(200, "GET", path_of(), gateway=number)
        print(f"served by both gateways after {time.monotonic() - started:.2f} s")
        await api.until(201, "POST", configs, {"metadata": {"name": "marker"}})
        async with asyncio.timeout(WITHIN):
            while not all("marker" in seen for seen, _ in followed):  # noqa: ASYNC110 (the watches are other tasks)
                await asyncio.sleep(0.01)

        widgets, outcomes = [(dict[str, int](), asyncio.Event()) for _ in range(4)], Counter[int]()
        tasks += [asyncio.create_task(api.follow(path_of(), number % 2, *follower)) for number, follower in enumerate(widgets)]
        acknowledged, is_over = dict[str, int](), asyncio.Event()

        async def write(number: int) -> None:
            count = 0
            while not is_over.is_set():
                name, count = f"w{number}-{count}", count + 1
                code, _ = await api.request("POST", path_of(), widget(name, spec={"size": count}), gateway=count % 2)
                outcomes[code] += 1
                if code == 201:
                    acknowledged[name] = count
                await asyncio.sleep(0.1)

        writers = [asyncio.create_task(write(number)) for number in range(2)]
        tasks += writers
        for name in RESTARTED:
            began_restart = time.monotonic()
            await restart(cluster, name, signal.SIGKILL if name.endswith("0") else signal.SIGTERM)
            print(f"{name} restarted in {time.monotonic() - began_restart:.1f} s, {dict(outcomes)}")
            for number in range(2):
                await api.until(200, "GET", path_of(), gateway=number)
            before = len(acknowledged)
            while len(acknowledged) == before:  # noqa: ASYNC110 (the writers are other tasks)
                await asyncio.sleep(0.05)
        is_over.set()
        await asyncio.gather(*writers)
        print(f"{len(acknowledged)} creates, codes {dict(outcomes)}")
        assert set(outcomes) <= {0, 201, 409, 503, 504}
        for number in range(2):
            page = await api.until(200, "GET", path_of(), gateway=number)
            stored = {item["metadata"]["name"]: item["spec"]["size"] for item in page["items"]}
            assert acknowledged.items() <= stored.items()
        async with asyncio.timeout(WITHIN):
            while not all(seen == stored for seen, _ in widgets):  # noqa: ASYNC110 (the watches are other tasks)
                await asyncio.sleep(0.01)

        await api.until(200, "DELETE", f"{DEFINITIONS}/widgets.example.com")
        for number in range(2):
            await api.until(404, "GET", path_of(), gateway=number)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
