"""How long nobody binds after `docker kill` of the leading scheduler's container, in docker-compose: `make compose-bench`.

The gap is from before the `docker kill` command is started to the arrival, in this process, of the next leader's first bind.
"""

import asyncio
import json
import time
from pathlib import Path

import click

from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.verification.bench.failover import LEADER_TIMEOUT, WARM_UP, create_in_background, present_leader
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.bench.report import describe_machine, summarize
from pinnace.verification.bench.witness import BOUND, watch_pods
from tests.compose.stack import Stack, eventually, missing, run

NODES = 500


@click.command()
@click.option("--times", default=20, show_default=True, help="How often.")
@click.option("--save", type=click.Path(path_type=Path), help="Append the result to this file, as a line of JSON.")
def main(times: int, save: Path | None) -> None:
    if problem := missing():
        raise click.ClickException(problem)
    stack = Stack(nodes=NODES)
    try:
        stack.up()
        gaps, violations = asyncio.run(measure(stack, times))
    finally:
        stack.down()
    summary = summarize(gaps)
    click.echo(
        f"docker kill, {times} times: p50 {summary.p50:.3f} s, p99 {summary.p99:.3f} s, max {summary.max:.3f} s; {violations}"
    )
    if save:
        machine = describe_machine()
        result = {
            "row": "compose failover", "commit": machine.commit, "nodes": NODES, "times": times,
            "gaps_s": [round(gap, 4) for gap in gaps],
            "p50_s": round(summary.p50, 4), "p99_s": round(summary.p99, 4), "max_s": round(summary.max, 4),
            "violations": violations,
        }  # fmt: skip
        with save.open("a") as file:
            file.write(json.dumps(result) + "\n")
    if any(violations.values()):
        raise click.ClickException("what must never happen has happened")


async def measure(stack: Stack, times: int) -> tuple[list[float], dict[str, int]]:
    """The gaps in seconds, and what the witness found wrong."""
    load, gaps = CreatedPods(), list[float]()
    connection = Connection(stack.config.endpoints, tls=stack.config.tls)
    client = Client(connection)
    try:
        async with watch_pods(client) as witness:
            for turn in range(times):
                async with create_in_background(load, client):
                    await witness.wait_for_stage(BOUND, witness.history.counts[BOUND] + WARM_UP, LEADER_TIMEOUT)
                    leader = await present_leader(client)
                    hit = time.monotonic()
                    killing = await asyncio.create_subprocess_exec(
                        "docker", "kill", leader.holder, stdout=asyncio.subprocess.DEVNULL
                    )
                    bound = await witness.next_leader_binds(leader.token, LEADER_TIMEOUT)
                await killing.wait()
                gaps.append(bound - hit)
                click.echo(f"{turn + 1:3}  {leader.holder} killed, the next leader binds after {gaps[-1]:.3f} s")
                await asyncio.to_thread(bring_back, stack, leader.holder)
            await witness.wait_for_stage(BOUND, len(load.uids), LEADER_TIMEOUT)
            return gaps, witness.history.count_violations(load.uids)
    finally:
        await connection.close()


def bring_back(stack: Stack, container: str) -> None:
    run("docker", "start", container)
    eventually("healthy again", lambda: stack.state(container)["Health"]["Status"] == "healthy" or None, LEADER_TIMEOUT)


if __name__ == "__main__":
    main()
