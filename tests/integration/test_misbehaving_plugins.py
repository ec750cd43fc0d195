"""Schedulers as processes, one of which has a plugin that does what no plugin should: other pods are bound, the log names the
plugin, and another replica binds the pods for which it misbehaves.

A plugin that raised asyncio.CancelledError ended the leader's term without a log line: it kept the election, said on /readyz
that it was well, and bound nothing. GeneratorExit and SystemExit ended the process, without the plugin's name.
"""

import asyncio
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.runtime.logs import PluginFailed
from tests.builders import make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.integration.test_own_plugin import bound, failure_of

PLUGIN = """
import asyncio, sys, time
import numpy as np
from pinnace.scheduler.framework import FilterResult


class Misbehaving:
    name = "Misbehaving"
    pre_bind_timeout = 2.0

    def filter(self, state, pod, nodes):
        match pod.pod.metadata.labels.get("does"):
            case "cancelled":
                raise asyncio.CancelledError
            case "cancel":
                asyncio.current_task().cancel()
            case "exit":
                sys.exit(3)
            case "generator-exit":
                raise GeneratorExit
            case "hang":
                time.sleep(600)
            case "spin":
                while True:
                    pass
        return FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")

    async def pre_bind(self, state, pod, node):
        if pod.pod.metadata.labels.get("does") == "never":
            await asyncio.get_running_loop().create_future()
"""
NAMES = ("a", "b", "c")
HANDED_OVER = 45.0
"""Seconds: 10 in which the leader may fail at its work, some attempts before that count, and a slow machine."""


@pytest.mark.parametrize("deed", ["cancelled", "cancel", "exit", "generator-exit", "hang", "spin", "never"])
async def test_plugin_that_misbehaves(tmp_path: Path, apiserver: Component, client: Client, start: Start, deed: str) -> None:
    plugin = tmp_path / "misbehaving.py"
    plugin.write_text(PLUGIN)
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "1", "--node-prefix", "node-").ready()
    bad = start("scheduler", "bad", "--server", apiserver.address, "--plugin", f"{plugin}:Misbehaving")
    await bad.ready()
    await client.pods.create(make_pod("before").req(cpu="10m").new())
    await bound(client, "before")

    for name in NAMES:
        await client.pods.create(make_pod(name).req(cpu="10m").label("does", deed).new())
    assert 'plugin "Misbehaving" failed in ' in await failure_of(client, "a")
    await client.pods.create(make_pod("after").req(cpu="10m").new())
    await bound(client, "after")

    if deed == "cancel":  # it does not see the task of the term; what it raises for that is an ordinary exception
        assert PluginFailed("Misbehaving", "Filter", "AttributeError") in bad.logged(PluginFailed) and bad.stop() == 0
        return
    good = start("scheduler", "good", "--server", apiserver.address)
    await good.ready()
    async with asyncio.timeout(HANDED_OVER):
        for name in NAMES:
            await _bound(client, name)
    assert (await client.elections.get("scheduler")).holder == "good"
    assert bad.process.poll() is None, "it stands by"
    assert {item.plugin for item in bad.logged(PluginFailed)} == {"Misbehaving"}
    assert bad.stop() == 0


async def _bound(client: Client, name: str) -> Pod:
    async for batch in client.pods.watch("default", fields=f"metadata.name={name}"):
        for _, pod in batch.events:
            if pod.spec.nodeName:
                return pod
    raise AssertionError("the watch ended")
