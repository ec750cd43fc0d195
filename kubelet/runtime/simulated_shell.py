"""A small shell for simulated containers. It has no processes, no network, and only files that are computed from the pod.

    line --split_commands--> commands with ; && || between them --expand--> words --> builtin, or program --> exit code

Supported: quotes, backslashes, comments, $NAME, ${NAME}, $?, NAME=VALUE, `sh -c`, `sh` with a script or a terminal as input.
Pipes, redirections, substitutions and loops are errors that name the unsupported part. Messages and exit codes follow BusyBox:
127 for an unknown command, 126 for one that cannot run, 2 for a syntax error.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple, Protocol

from pinnace.kubelet.runtime.simulated_machine import SimulatedFileError, SimulatedMachine

LONGEST_LINE = 16 << 10
"""Characters of a line or of the text of `sh -c`, also after the expansion of variables."""
DEEPEST = 8
"""Shells within shells."""
KEYWORDS = frozenset({"if", "for", "while", "until", "case", "function", "{", "(", "then", "do"})
SHELLS = frozenset({"sh", "bash", "ash", "dash"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class Interrupted(Exception):
    """Ctrl-C was pressed."""


class ShellExit(Exception):
    """The command `exit`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ShellSyntaxError(Exception):
    """The line cannot be parsed. The message has no prefix."""


class CommandStreams(Protocol):
    """Input, output and time of a command. All methods raise Interrupted."""

    terminal: bool

    async def read(self) -> bytes:
        """The next input; empty at its end."""
        ...

    async def read_line(self) -> str | None:
        """The next line without its end. None: there is no more input."""
        ...

    async def write(self, text: str) -> None: ...

    async def write_bytes(self, data: bytes) -> None: ...

    async def write_error(self, text: str) -> None: ...

    async def sleep(self, seconds: float) -> None: ...


class Program(Protocol):
    """`arguments` do not contain the name. Returns the exit code."""

    async def __call__(self, shell: "Shell", arguments: Sequence[str]) -> int: ...


class Command(NamedTuple):
    """`operator`: what stands before the text: an empty string, ";", "&&" or "||"."""

    operator: str
    text: str


class Shell:
    """One process of a simulated container. `programs` and `builtins`: by name."""

    def __init__(
        self,
        machine: SimulatedMachine,
        io: CommandStreams,
        programs: Mapping[str, Program],
        builtins: Mapping[str, Program],
        environment: Mapping[str, str] | None = None,
        depth: int = 0,
    ) -> None:
        self.machine = machine
        self.io = io
        self.variables: MutableMapping[str, str] = dict(machine.environment if environment is None else environment)
        self.exported = set(self.variables)
        self.directory = machine.directory
        self._programs = programs
        self._builtins = builtins
        self._depth = depth
        self.code = 0
        """The exit code of the last command."""

    @property
    def environment(self) -> dict[str, str]:
        """The exported variables."""
        return {name: value for name, value in self.variables.items() if name in self.exported}

    async def run_program(self, words: Sequence[str]) -> int:
        """Run a command without a shell, as exec does: an unknown program is an error of the container runtime."""
        name = self._program_name(words[0])
        if name is None:
            problem, code = self._why_not_executable(words[0])
            message = f'OCI runtime exec failed: exec failed: unable to start container process: exec: "{words[0]}": {problem}'
            await self.io.write_error(f"{message}: unknown\n")
            return code
        return await self._call(name, words[1:])

    async def run_script(self, text: str) -> int:
        """Run a text, as `sh -c` does. Return the exit code of the last command."""
        try:
            await self.run_line(text)
        except ShellExit as exit_:
            return exit_.code
        return self.code

    async def run_input(self) -> int:
        """Run the lines of the input, with a prompt in a terminal. A terminal survives errors and Ctrl-C."""
        terminal = self.io.terminal
        while True:
            try:
                if terminal:
                    await self.io.write(f"{self.directory} # ")
                line = await self.io.read_line()
                if line is None:
                    await self.io.write("\n" if terminal else "")
                    return self.code
                await self.run_line(line)
            except Interrupted:
                if not terminal:
                    raise
                self.code = 130
            except ShellExit as exit_:
                return exit_.code

    async def run_line(self, line: str) -> None:
        """Raises Exit and Interrupted. Other errors are written and set the exit code."""
        try:
            for operator, text in split_commands(line):
                if (operator == "&&" and self.code) or (operator == "||" and not self.code):
                    continue
                words = self._split_words(text)
                if words:
                    self.code = await self.run_words(words)
        except ShellSyntaxError as error:
            await self.io.write_error(f"sh: {error}\n")
            self.code = 2

    def _split_words(self, text: str) -> list[str]:
        variables = {**self.variables, "?": str(self.code), "$": "1", "0": "sh"}
        expanded = expand_variables(text, variables)
        if len(expanded) > LONGEST_LINE:
            raise ShellSyntaxError(f"the line exceeds {LONGEST_LINE} characters")
        try:
            return shlex.split(expanded)
        except ValueError:
            raise ShellSyntaxError("syntax error: unterminated quoted string") from None

    async def run_words(self, words: Sequence[str]) -> int:
        for count, word in enumerate(words):
            assignment = _ASSIGNMENT.fullmatch(word)
            if assignment is None:
                return await self._run_with(dict(self._parse_assignments(words[:count])), words[count:])
        self.variables.update(self._parse_assignments(words))
        return 0

    def _parse_assignments(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        for word in words:
            name, _, value = word.partition("=")
            yield name, value

    async def _run_with(self, assigned: Mapping[str, str], words: Sequence[str]) -> int:
        """Run a command with additional variables."""
        name = words[0]
        if name in KEYWORDS:
            raise ShellSyntaxError(f'"{name}" is not supported in simulated containers')
        variables, exported = self.variables, self.exported
        if assigned:
            self.variables, self.exported = {**variables, **assigned}, exported | assigned.keys()
        try:
            if (builtin := self._builtins.get(name)) is not None:
                return await builtin(self, words[1:])
            if (program := self._program_name(name)) is not None:
                return await self._call(program, words[1:])
        finally:
            if assigned:
                self.variables, self.exported = variables, exported
        if "/" in name:
            _, code = self._why_not_executable(name)
            shown = "Permission denied" if code == 126 else "not found"
            await self.io.write_error(f"sh: {name}: {shown}\n")
            return code
        await self.io.write_error(f"sh: {name}: not found\n")
        return 127

    async def _call(self, name: str, arguments: Sequence[str]) -> int:
        if name in SHELLS:
            return await self._run_nested_shell(arguments)
        return await self._programs[name](self, arguments)

    async def _run_nested_shell(self, arguments: Sequence[str]) -> int:
        if self._depth == DEEPEST:
            await self.io.write_error("sh: Resource temporarily unavailable\n")
            return 1
        inner = Shell(self.machine, self.io, self._programs, self._builtins, self.environment, self._depth + 1)
        inner.directory = self.directory
        rest = list(arguments)
        while rest and rest[0] in ("-l", "-i", "-e", "-u", "-x", "--login"):
            del rest[0]
        if not rest:
            return await inner.run_input()
        if re.fullmatch(r"-[leuxi]*c", rest[0]):
            if len(rest) == 1:
                await self.io.write_error("sh: -c requires an argument\n")
                return 2
            return await inner.run_script(rest[1])
        await self.io.write_error(f"sh: {rest[0]}: simulated containers have no scripts; use sh -c\n")
        return 127

    def _program_name(self, word: str) -> str | None:
        """The name of a program, from a name or a path. None: there is no such program."""
        folder, slash, name = word.rpartition("/")
        if slash and folder not in self.machine.program_folders:
            return None
        return name if name in self._programs or name in SHELLS else None

    def _why_not_executable(self, word: str) -> tuple[str, int]:
        """The problem as the container runtime says it, and the exit code."""
        if "/" not in word:
            return "executable file not found in $PATH", 127
        path = self.machine.resolve_path(word, self.directory)
        if self.machine.is_directory(path):
            return "is a directory: permission denied", 126
        try:
            self.machine.read(path)
        except SimulatedFileError:
            return f"stat {word}: no such file or directory", 127
        return "permission denied", 126


def split_commands(text: str) -> list[Command]:
    """The commands of a text. A newline is like a semicolon, but may follow nothing. Raises ShellSyntaxError."""
    if len(text) > LONGEST_LINE:
        raise ShellSyntaxError(f"the line exceeds {LONGEST_LINE} characters")
    commands: list[Command] = []
    operator, current, skip = ";", "", 0
    for index, character, quote in _walk_quoted(text):
        if index < skip:
            continue
        pair = text[index : index + 2]
        result = pair if pair in ("&&", "||") else character
        if not quote and result in (";", "&&", "||", "\n"):
            if current.strip():
                commands.append(Command(operator, current))
                operator, current = ";" if result == "\n" else result, ""
            elif result != "\n":
                raise ShellSyntaxError(f'syntax error: unexpected "{result}"')
            skip = index + len(result)
        elif not quote and (character in "|<>&()`" or pair == "$("):
            raise ShellSyntaxError(_unsupported_message(text, index))
        else:
            current += character
    if current.strip():
        commands.append(Command(operator, current))
    elif operator in ("&&", "||"):
        raise ShellSyntaxError('syntax error: unexpected "end of file"')
    return commands


def _unsupported_message(line: str, index: int) -> str:
    if line[index] == ">":
        target = line[index:].lstrip("> ").partition(" ")[0].rstrip(";&|")
        return f"can't create {target or 'a file'}: simulated containers have no writable files"
    if line.startswith("$(", index):
        return '"$(" is not supported in simulated containers'
    return f'"{line[index]}" is not supported in simulated containers: use ;, && and ||'


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Replace variables, so that shlex.split returns the words of a shell. Raises ShellSyntaxError."""
    result: list[str] = []
    skip = 0
    for index, character, quote in _walk_quoted(text):
        if index < skip:
            continue
        if character == "`" and quote not in ("'", "\\"):
            raise ShellSyntaxError(_unsupported_message(text, index))
        if quote == "escape" and text[index + 1 : index + 2] in ("$", "`"):
            continue  # these two characters mean nothing to shlex
        if character != "$" or quote in ("'", "\\"):
            result.append(character)
            continue
        name, end = _parse_variable(text, index)
        skip = end
        if not name:
            result.append("$")
            continue
        value = variables.get(name, "")
        if quote == '"':
            result.append(re.sub(r'(["\\])', r"\\\1", value))
        else:
            fields = " ".join(shlex.quote(word) for word in value.split())
            result.append(f" {fields}" if value[:1].isspace() else fields)
        if len(value) > LONGEST_LINE:
            raise ShellSyntaxError(f"the line exceeds {LONGEST_LINE} characters")
    return "".join(result)


def _parse_variable(text: str, index: int) -> tuple[str, int]:
    """The name after a dollar sign, and the end of the reference. An empty name: it is no reference."""
    rest = text[index + 1 : index + 2]
    if rest == "(":
        raise ShellSyntaxError('"$(" is not supported in simulated containers')
    if rest == "{":
        name, brace, _ = text[index + 2 :].partition("}")
        if not brace or not (_NAME.fullmatch(name) or name in ("?", "$", "0")):
            raise ShellSyntaxError("bad substitution")
        return name, index + len(name) + 3
    if rest and rest in "?$0":
        return rest, index + 2
    if match := _NAME.match(text, index + 1):
        return match[0], match.end()
    return "", index + 1


def _walk_quoted(text: str) -> Iterator[tuple[int, str, str]]:
    """Each character with what quotes it: an empty string, ', ", or a backslash. Quotes belong to their text. A backslash that
    quotes the next character has the quote "escape". Comments are left out.
    """
    quote, escaped, comment, before = "", False, False, "\n"
    for index, character in enumerate(text):
        comment = comment and character != "\n"
        if escaped:
            yield index, character, "\\"
            escaped = False
        elif character == "\\" and quote != "'":
            yield index, character, "escape"
            escaped = True
        elif character in "'\"" and quote in ("", character) and not comment:
            yield index, character, character
            quote = "" if quote else character
        elif not quote and character == "#" and before in " \t\n;":
            comment = True
        elif not comment:
            yield index, character, quote
        before = character
