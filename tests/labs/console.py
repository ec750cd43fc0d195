"""The console blocks of a Markdown document: parsed, executed in one bash, and compared with what they print.

`parse` finds the blocks; `Shell` runs their commands, each within a time limit; `match` compares the output with the expected
lines; `ConsoleParser` makes them examples of Sybil. `labs/README.md` describes the format.
"""

import os
import re
import secrets
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sybil import Document, Example, Region

TIMEOUT = 60.0
"""Seconds for a command whose block does not state `timeout=`."""
RETRY_INTERVAL = 0.3
"""Seconds between two runs of a command whose output comes eventually."""

_BLOCK = re.compile(
    r"^```(?P<info>(?:console|\w+ +file=)[^\n`]*)\n(?P<body>.*?)^```[ ]*$"
    r"|^<!-- (?P<hidden>console[^\n]*)\n(?P<text>.*?)^-->[ ]*$",
    re.M | re.S,
)
_STEP = re.compile(r"^<!-- step: ([\w-]+) -->$", re.M)
_TOKEN = re.compile(r"(\.\.\.)|\{([a-z_][a-z0-9_]*)\}|( {2,})")
_UNITS = {"s": 1.0, "m": 60.0}


class Mismatch(AssertionError):
    """A command failed, took too long, or printed something else."""


@dataclass
class Command:
    """One command of a block, and the output that is expected of it."""

    line: int
    """Its line in the document, from 1."""
    text: str
    expected: list[str] = field(default_factory=list)
    first: int = 0
    """The line of the document at which the expected output begins, from 1."""


@dataclass
class Block:
    line: int
    start: int
    end: int
    options: Mapping[str, str]
    commands: list[Command]
    step: str
    """The id of the step that contains the block, or an empty string."""
    content: str = ""
    """Of a block with `file=`: the content of the file."""

    def seconds(self, option: str, default: float = 0.0) -> float:
        text = self.options.get(option, "")
        if not text:
            return default
        if not (result := re.fullmatch(r"(\d+(?:\.\d+)?)([sm])", text)):
            raise ValueError(f"line {self.line}: {option}={text} is not a duration such as 20s")
        return float(result[1]) * _UNITS[result[2]]


def parse(text: str) -> list[Block]:
    """The blocks in their order. Raises ValueError for an option that does not exist."""
    blocks = []
    for result in _BLOCK.finditer(text):
        info, body = result["info"] or result["hidden"], result["text"] if result["body"] is None else result["body"]
        options = {name: value for name, _, value in (word.partition("=") for word in info.split()[1:])}
        line = text.count("\n", 0, result.start()) + 1
        if unknown := options.keys() - {"eventually", "timeout", "exit", "skip", "file"}:
            raise ValueError(f"line {line}: unknown option {', '.join(sorted(unknown))}")
        steps = _STEP.findall(text, 0, result.start())
        block = Block(line, result.start(), result.end(), options, [], steps[-1] if steps else "")
        if "file" in options:
            block.content = body
        else:
            block.commands = list(_commands(body, line + 1))
        blocks.append(block)
    return blocks


def _commands(body: str, line: int) -> Iterator[Command]:
    command: Command | None = None
    for number, each in enumerate(body.splitlines(), line):
        if each.startswith("$ "):
            if command:
                yield command
            command = Command(number, each[2:], first=number + 1)
        elif command is None:
            raise ValueError(f'line {number}: a console block begins with a command, "$ ..."')
        elif each.startswith("> ") and not command.expected:
            command.text += "\n" + each[2:]
            command.first = number + 1
        else:
            command.expected.append(each)
    if command:
        yield command


def match(expected: list[str], actual: str, known: Mapping[str, str]) -> dict[str, str] | None:
    """The captures of the output, or None if it differs. `...` alone matches any lines, within a line any text; two or more
    spaces match two or more; `{name}` matches a word, the same one each time; `known` contains earlier captures."""
    seen: set[str] = set()
    pattern = ""
    for line in expected:
        pattern += r"(?:[^\n]*\n)*?" if line.strip() == "..." else f"{_line_pattern(line, known, seen)}[ ]*\n"
    result = re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(actual)))
    return None if result is None else result.groupdict()


def _line_pattern(line: str, known: Mapping[str, str], seen: set[str]) -> str:
    pattern, place = "", 0
    line = line.rstrip()
    for result in _TOKEN.finditer(line):
        pattern += re.escape(line[place : result.start()])
        place = result.end()
        name = result[2]
        if result[1]:
            pattern += r"[^\n]*?"
        elif not name:
            pattern += " {2,}"
        elif name in known:
            pattern += re.escape(known[name])
        elif name in seen:
            pattern += f"(?P={name})"
        else:
            seen.add(name)
            pattern += rf"(?P<{name}>[^\s,]+)"
    return pattern + re.escape(line[place:])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def updated(expected: list[str], actual: str, known: Mapping[str, str]) -> list[str]:
    """The output as it is now. Lines with patterns that still match are kept."""
    left, lines = list(expected), []
    for line in _lines(actual):
        kept = next((item for item in left if item.strip() != "..." and match([item], line, known) is not None), None)
        if kept is not None:
            del left[: left.index(kept) + 1]
        lines.append(line if kept is None else kept)
    return lines


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user without a cluster and without configuration: its home is the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PINNACE_", "KUBECONFIG", "XDG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PATH": path}
    return kept | own | {"NO_COLOR": "1", "COLUMNS": "200"}


class Shell:
    """One bash. A command that exceeds its time limit is killed with all its children, and the bash with it."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environ),
            start_new_session=True,
        )

    def run(self, command: str, timeout: float) -> tuple[str, int]:
        """The output, stderr included, and the exit code. Raises Mismatch when the time is over."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        mark = f"--{secrets.token_hex(8)}--"
        self._bash.stdin.write(f"eval {shlex.quote(command)} </dev/null; echo {mark} $?\n".encode())
        self._bash.stdin.flush()
        output, deadline, descriptor = b"", time.monotonic() + timeout, self._bash.stdout.fileno()
        while not (ended := re.search(rb"%s (\d+)\n" % mark.encode(), output)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self.close()
                raise Mismatch(f"`{command}` did not end within {timeout:g} s; it printed\n{output.decode(errors='replace')}")
            if not (chunk := os.read(descriptor, 65536)):
                raise Mismatch(f"bash ended in `{command}`; it printed\n{output.decode(errors='replace')}")
            output += chunk
        return output[: ended.start()].decode(errors="replace"), int(ended[1])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()


class Runner:
    """Runs the blocks of one document, and remembers the captures and the outputs that differ."""

    def __init__(self, shell: Shell, folder: Path, *, update: bool = False) -> None:
        self.shell = shell
        self.folder = folder
        self.update = update
        self.failed = False
        self.captures: dict[str, str] = {}
        self.changes: list[tuple[int, int, list[str]]] = []
        """First line (from 1), number of lines, new lines."""

    def run(self, block: Block) -> None:
        """Raises Mismatch."""
        if "file" in block.options:
            path = self.folder / block.options["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.content)
        for command in block.commands:
            self._run(block, command)

    def _run(self, block: Block, command: Command) -> None:
        limit = block.seconds("timeout", TIMEOUT)
        wanted = block.options.get("exit", "0")
        deadline = time.monotonic() + block.seconds("eventually")
        while True:
            output, code = self.shell.run(command.text, limit)
            result = match(command.expected, output, self.captures)
            if result is not None and wanted in ("any", str(code)):
                break
            if time.monotonic() >= deadline:
                if self.update and wanted in ("any", str(code)):
                    lines = updated(command.expected, output, self.captures)
                    self.changes.append((command.first, len(command.expected), lines))
                    result = match(lines, output, self.captures) or {}
                    break
                self.failed = True
                raise Mismatch(_report(command, output, code, wanted, self.captures))
            time.sleep(RETRY_INTERVAL)
        for name, value in result.items():
            self.captures[name] = value
            self.shell.run(f"export {name}={shlex.quote(value)}", TIMEOUT)

    def rewrite(self, path: Path) -> None:
        """Write the outputs that differ into the document."""
        lines = path.read_text().splitlines()
        for first, count, new in sorted(self.changes, reverse=True):
            lines[first - 1 : first - 1 + count] = new
        path.write_text("\n".join(lines) + "\n")


def _report(command: Command, output: str, code: int, wanted: str, known: Mapping[str, str]) -> str:
    shown = "\n".join(f"    {line}" for line in _lines(output)) or "    (nothing)"
    expected = "\n".join(f"    {line}" for line in command.expected) or "    (nothing)"
    names = ", ".join(f"{name}={value}" for name, value in known.items())
    exits = "" if wanted in ("any", str(code)) else f"\nexit code {code}, expected {wanted}"
    return f"line {command.line}: $ {command.text}\nexpected:\n{expected}\ngot:\n{shown}{exits}\n{names}".rstrip()


class ConsoleParser:
    """A parser of Sybil. The runner of the document is in its namespace. After a failure, the rest of a document is skipped."""

    def __call__(self, document: Document) -> Iterator[Region]:
        for block in parse(document.text):
            if "skip" not in block.options:
                yield Region(block.start, block.end, block, self.evaluate)

    @staticmethod
    def evaluate(example: Example) -> str | None:
        runner: Runner = example.namespace["runner"]
        if runner.failed:
            pytest.skip("an earlier block of this document failed")
        try:
            runner.run(example.parsed)
        except Mismatch as error:
            runner.failed = True
            return str(error)
        return None
