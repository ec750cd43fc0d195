"""`leader -w`: the present leader, then every change, until interrupted or its reader leaves."""

import asyncio
import os

from tests.integration.cli.commands import PATIENCE, Commands, command


async def test_leader_watch_ends_at_interrupt(pinnace: Commands) -> None:
    async with pinnace.start("leader", "-w", "-o", "json") as watch:
        assert await watch.line() == '{"election": "scheduler", "holder": "", "token": 0}'
        assert (await watch.interrupt()).code == 130


async def test_leader_watch_ends_at_timeout(pinnace: Commands) -> None:
    done = await pinnace("leader", "-w", "--timeout", "2s")
    assert done.code == 0 and done.err == "note: the watch ended after --timeout (2 s)\n"


async def test_leader_watch_ends_when_reader_closes_pipe(pinnace: Commands) -> None:
    script = " ".join(command("leader", "-w", "-o", "json")) + " | head -1 >&2; echo ${PIPESTATUS[0]} >&2"
    environment = {**os.environ, "KUBECONFIG": os.devnull + "/nothing", "PINNACE_SERVER": pinnace.servers[0]}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1, env=environment)
    _, err = await asyncio.wait_for(shell.communicate(), PATIENCE)
    first, code = err.splitlines()
    assert first and code == b"141"
