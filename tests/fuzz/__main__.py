"""python -m tests.fuzz --messages 20000 --seed 1, or --seed 1 --only 4711 to send one of them again.

Exit code 0: the server did not mind; 10: it did.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from tests.conftest import start_members
from tests.fuzz.live import live
from tests.fuzz.run import Report, Run

MINDED = 10


@click.command()
@click.option("--messages", default=20_000, show_default=True, help="How many to send.")
@click.option("--seed", default=1, show_default=True, help="Of what is sent.")
@click.option("--only", type=int, help="Send this number alone.")
def main(messages: int, seed: int, only: int | None) -> None:
    """Sends malformed, huge and hostile messages to an API server."""
    with tempfile.TemporaryDirectory(prefix="pinnace-fuzz-") as folder:
        report = asyncio.run(fuzz(Path(folder), messages, seed, only))
    print(report)
    for name in dict.fromkeys(problem.partition(" ")[0] for problem in report.problems if problem.startswith(f"{seed}:")):
        print(f"replay: python -m tests.fuzz --seed {seed} --only {name.partition(':')[2]}")
    sys.exit(MINDED if report.problems else 0)


async def fuzz(folder: Path, messages: int, seed: int, only: int | None) -> Report:
    (etcd,) = await start_members(folder, 1)
    try:
        async with live(folder, etcd.endpoint) as server:
            run = Run(server, seed, lambda line: print(line, flush=True))
            return await run.play(messages) if only is None else await run.play_one(only)
    finally:
        etcd.kill()


if __name__ == "__main__":
    main()
