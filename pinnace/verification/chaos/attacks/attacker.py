"""One attack in a process of its own, which is pinned to one CPU: `python -m pinnace.verification.chaos.attacks.attacker`.

The process prints READY, and attacks when its stdin ends. It runs until SIGTERM or its time limit, and prints the number of
outcomes as JSON.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Self

import click
import uvloop

from pinnace.cluster.links import dying_with_parent
from pinnace.runtime import process
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.attacks.callers import create_tls_contexts
from pinnace.verification.chaos.attacks.table import ATTACKS, Attack
from pinnace.verification.chaos.attacks.wire import AttackTarget

READY = "ready"
START_TIMEOUT = 30.0
END_TIMEOUT = 20.0


class Attacker:
    """Starts the process, and ends it. `folder`: the certificates of the attackers. `limit`: seconds after which the attack
    ends, in case its parent dies. `nice`: its niceness."""

    def __init__(self, address: str, folder: Path, attack: Attack, limit: float, *, nice: int = 0) -> None:
        arguments = ("--gateway", address, "--certificates", f"{folder}", "--attack", attack.name, "--limit", f"{limit:g}")
        command = ("nice", "-n", f"{nice}", sys.executable, "-m", "pinnace.verification.chaos.attacks.attacker", *arguments)
        self._command = dying_with_parent(command)
        self._process: asyncio.subprocess.Process | None = None

    async def start_process(self) -> Self:
        """Start the process, which waits for `begin_attack`. If it does not start, no process is left. Raises ChaosError."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT):
                ready = (await self._process.stdout.readline()).decode().strip() == READY
        except TimeoutError:
            ready = False
        except BaseException:
            self.kill()
            raise
        if not ready:
            self.kill()
            raise ChaosError("the attacker did not start")
        return self

    def begin_attack(self) -> None:
        """Begin the attack."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()

    async def end_attack(self) -> Counter[str]:
        """End the attack, and return the number of outcomes. Raises ChaosError."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                output, _ = await self._process.communicate()
        except TimeoutError:
            self.kill()
            raise ChaosError(f"the attacker did not exit within {END_TIMEOUT:g} s") from None
        if self._process.returncode:
            raise ChaosError(f"the attacker exited with code {self._process.returncode}")
        return Counter(json.loads(output))

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@click.command()
@click.option("--gateway", required=True, metavar="HOST:PORT")
@click.option("--certificates", "folder", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--attack", required=True, type=click.Choice(list(ATTACKS)))
@click.option("--limit", type=float, required=True, help="Maximum run time in seconds.")
def main(gateway: str, folder: Path, attack: str, limit: float) -> None:
    """Attack a gateway until SIGTERM."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.exit(
        process.run_component(
            lambda stop: _run_attack(stop, gateway, folder, ATTACKS[attack], limit), new_loop=uvloop.new_event_loop
        )
    )


async def _run_attack(stop: asyncio.Event, gateway: str, folder: Path, attack: Attack, limit: float) -> None:
    target = AttackTarget(gateway, create_tls_contexts(folder))
    stopping = asyncio.create_task(stop.wait())
    click.echo(READY)
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    running_attack = asyncio.ensure_future(attack.send_requests(target))
    await asyncio.wait((running_attack, stopping), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if running_attack.done():
        running_attack.result()
    click.echo(json.dumps(target.outcomes))
    sys.stdout.flush()
    os._exit(0)  # the connections end with the process


if __name__ == "__main__":
    main()
