"""Leaves out each step of each lab: a check must then fail (`make labs-mutations`).

The blocks before the step are run as they are. Of the step itself, only `pinnace lab check` is run. With --commands, each
command of a step that changes something is left out by itself. The result is a table; the exit code is 1 if a check passes, or
if an earlier step fails, for example because the machine is busy.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from labs.conftest import set_up, tear_down
from pinnace.verification.labs.document import LabDocument, list_lab_texts, read_document
from tests.labs.console import Block, Command, Mismatch, Runner, parse

CHECK = "pinnace lab check"
READS = ("get", "events", "why", "status", "leader history", "leader\n", "describe", "lab", "logs", "top", "explain")
"""What commands begin with that change nothing."""
LIMIT = 90.0


@dataclass(frozen=True)
class Mutant:
    document: LabDocument
    step: str
    command: Command | None = None
    """Only this command is left out."""


def changes(command: Command) -> bool:
    text = f"{command.text}\n".removeprefix("pinnace ").removeprefix("kubectl ")
    return not text.startswith((*READS, "sleep", "cat", "echo", "grep"))


def mutants(numbers: list[int], steps: list[str], commands: bool) -> Iterator[Mutant]:
    for number, path in list_lab_texts().items():
        if numbers and number not in numbers:
            continue
        document = read_document(path)
        blocks = parse(path.read_text())
        for step in document.steps:
            if steps and step.id not in steps:
                continue
            if not commands:
                yield Mutant(document, step.id)
                continue
            for block in blocks:
                if block.step == step.id and "skip" not in block.options:
                    yield from (Mutant(document, step.id, command) for command in block.commands if changes(command))


def play(runner: Runner, mutant: Mutant) -> str:
    """The output of the check that failed, or an empty string if it passed. Raises Mismatch if an earlier step fails."""
    left_out = mutant.command.line if mutant.command else None
    for block in parse(mutant.document.path.read_text()):
        if "skip" in block.options:
            continue
        if block.step != mutant.step:
            runner.run(block)
            continue
        for command in block.commands:
            if command.text.startswith(CHECK):
                output, code = runner.shell.run(command.text, LIMIT)
                return output.strip() if code else ""
            if left_out not in (None, command.line):
                _try(runner, block, command)
        if left_out and "file" in block.options:
            runner.run(block)
    return ""


def _try(runner: Runner, block: Block, command: Command) -> None:
    """Run a command of the mutated step. Its output may differ."""
    limit = block.seconds("timeout", LIMIT)
    runner.shell.run(command.text, limit)
    if block.seconds("eventually"):
        time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=int, action="append", default=[], metavar="N")
    parser.add_argument("--step", action="append", default=[], metavar="ID", help="only this step; may be repeated")
    parser.add_argument("--commands", action="store_true", help="leave out single commands instead of whole steps")
    arguments = parser.parse_args()
    passed, total, began = 0, 0, time.monotonic()
    print("| lab | step | left out | the check then says |\n|---|---|---|---|")
    for mutant in mutants(arguments.lab, arguments.step, arguments.commands):
        namespace: dict[str, object] = {"path": mutant.document.path}
        set_up(namespace)
        runner = namespace["runner"]
        assert isinstance(runner, Runner)
        total += 1
        missed = "**nothing: the check passes**"
        try:
            said = play(runner, mutant)
        except Mismatch as error:
            said, missed = "", "**an earlier step failed**"
            print(f"lab {mutant.document.number}, {mutant.step}: an earlier step failed\n{error}", file=sys.stderr)
        finally:
            runner.changes.clear()
            tear_down(namespace)
        passed += not said
        what = f"`{mutant.command.text.splitlines()[0]}`" if mutant.command else "the step"
        shown = said.splitlines()[0].replace("|", "\\|") if said else missed
        print(f"| {mutant.document.number} | {mutant.step} | {what} | {shown} |", flush=True)
    print(f"\n{total - passed} of {total} found, {time.monotonic() - began:.0f} s")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
