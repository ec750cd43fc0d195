"""The programs and builtins of the shell of simulated containers. Each has the options that people type most."""

import math
import time
from collections.abc import Mapping, Sequence

from pinnace.kubelet.runtime.simulated_machine import SimulatedFileError
from pinnace.kubelet.runtime.simulated_shell import SHELLS, Program, Shell, ShellExit

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DATE = "%a %b %e %H:%M:%S UTC %Y"


async def _echo(shell: Shell, arguments: Sequence[str]) -> int:
    words, newline, escapes = list(arguments), "\n", False
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        option = words.pop(0)
        newline, escapes = "" if "n" in option else newline, escapes or "e" in option
    text = " ".join(words)
    if escapes:
        text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
    await shell.io.write(text + newline)
    return 0


async def _env(shell: Shell, arguments: Sequence[str]) -> int:
    if arguments:
        await shell.io.write_error("env: arguments are not supported in simulated containers\n")
        return 125
    await shell.io.write("".join(f"{name}={value}\n" for name, value in shell.environment.items()))
    for name in shell.machine.missing_variables:
        await shell.io.write_error(f"env: {name}: simulated containers do not read ConfigMaps and Secrets\n")
    return 0


async def _printenv(shell: Shell, arguments: Sequence[str]) -> int:
    if not arguments:
        return await _env(shell, ())
    values = [shell.environment.get(name) for name in arguments]
    await shell.io.write("".join(f"{value}\n" for value in values if value is not None))
    return int(None in values)


async def _hostname(shell: Shell, arguments: Sequence[str]) -> int:
    address = shell.machine.addresses.pod if list(arguments) in (["-i"], ["-I"]) else ""
    await shell.io.write(f"{address or shell.machine.hostname}\n")
    return 0


async def _cat(shell: Shell, arguments: Sequence[str]) -> int:
    code = 0
    for path in arguments or ("-",):
        if path == "-":
            while data := await shell.io.read():
                await shell.io.write_bytes(data)
            continue
        try:
            await shell.io.write(shell.machine.read(shell.machine.resolve_path(path, shell.directory)))
        except SimulatedFileError as error:
            await shell.io.write_error(f"cat: can't open '{path}': {error}\n")
            code = 1
    return code


async def _date(shell: Shell, arguments: Sequence[str]) -> int:
    formats = [word for word in arguments if word != "-u"]
    if len(formats) > 1 or not all(word.startswith("+") for word in formats):
        await shell.io.write_error("date: only -u and +FORMAT are supported in simulated containers\n")
        return 1
    moment = time.gmtime(shell.machine.now())
    format_ = formats[0][1:].replace("%s", str(int(shell.machine.now()))) if formats else _DATE
    try:
        await shell.io.write(f"{time.strftime(format_, moment)}\n")
    except ValueError:  # a NUL
        await shell.io.write_error("date: invalid format\n")
        return 1
    return 0


async def _sleep(shell: Shell, arguments: Sequence[str]) -> int:
    seconds = 0.0
    for word in arguments:
        number, unit = (word[:-1], word[-1]) if word[-1:] in _UNITS else (word, "s")
        try:
            seconds += float(number) * _UNITS[unit]
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds) or seconds < 0:
            await shell.io.write_error(f"sleep: invalid number '{word}'\n")
            return 1
    if not arguments:
        await shell.io.write_error("sleep: missing operand\n")
        return 1
    await shell.io.sleep(seconds)
    return 0


async def _ls(shell: Shell, arguments: Sequence[str]) -> int:
    code, paths = 0, [word for word in arguments if not word.startswith("-")] or ["."]
    for path in paths:
        absolute = shell.machine.resolve_path(path, shell.directory)
        try:
            names = [path] if shell.machine.is_file(absolute) else shell.machine.list(absolute)
        except SimulatedFileError as error:
            await shell.io.write_error(f"ls: {path}: {error}\n")
            code = 1
            continue
        title = f"{path}:\n" if len(paths) > 1 else ""
        await shell.io.write(title + "".join(f"{name}\n" for name in names))
    return code


async def _test(shell: Shell, arguments: Sequence[str]) -> int:
    match list(arguments):
        case []:
            return 1
        case [word]:
            return int(not word)
        case ["!", *rest]:
            return int(not await _test(shell, rest))
        case ["-n", word]:
            return int(not word)
        case ["-z", word]:
            return int(bool(word))
        case [("-d" | "-e" | "-f" | "-r" | "-s") as option, path]:
            absolute = shell.machine.resolve_path(path, shell.directory)
            is_directory, is_file = shell.machine.is_directory(absolute), shell.machine.is_file(absolute)
            return int(not {"-d": is_directory, "-f": is_file, "-s": is_file}.get(option, is_directory or is_file))
        case [one, "=" | "==", other]:
            return int(one != other)
        case [one, "!=", other]:
            return int(one == other)
    await shell.io.write_error("test: this expression is not supported in simulated containers\n")
    return 2


async def _bracket(shell: Shell, arguments: Sequence[str]) -> int:
    if arguments[-1:] != ["]"]:
        await shell.io.write_error("[: missing ]\n")
        return 2
    return await _test(shell, list(arguments)[:-1])


async def _id(shell: Shell, arguments: Sequence[str]) -> int:
    user, group = shell.machine.user, shell.machine.group
    short = {"-u": str(user), "-g": str(group), "-un": _user_name(user), "-gn": _user_name(group)}
    named = f"uid={user}{_in_brackets(user)} gid={group}{_in_brackets(group)} groups={group}{_in_brackets(group)}"
    await shell.io.write(f"{short.get(' '.join(arguments), named)}\n")
    return 0


def _user_name(number: int) -> str:
    return "root" if number == 0 else str(number)


def _in_brackets(number: int) -> str:
    return "(root)" if number == 0 else ""


async def _whoami(shell: Shell, arguments: Sequence[str]) -> int:
    await shell.io.write(f"{_user_name(shell.machine.user)}\n")
    return 0


async def _ps(shell: Shell, arguments: Sequence[str]) -> int:
    rows = ((1, shell.machine.main_command), (7, " ".join(("ps", *arguments))))
    user = _user_name(shell.machine.user)
    lines = [f"{number:>5} {user:<8}  0:00 {command}\n" for number, command in rows]
    await shell.io.write("PID   USER     TIME  COMMAND\n" + "".join(lines))
    return 0


async def _uname(shell: Shell, arguments: Sequence[str]) -> int:
    system = ("Linux", shell.machine.hostname, "simulated")
    words = {"": system[:1], "-s": system[:1], "-n": system[1:2], "-r": system[2:], "-a": system}.get(
        " ".join(arguments), system
    )
    await shell.io.write(f"{' '.join(words)}\n")
    return 0


async def _tar(shell: Shell, arguments: Sequence[str]) -> int:
    """`kubectl cp` runs tar."""
    await shell.io.write_error("tar: simulated containers have no files to copy; kubelets with --runtime process have\n")
    return 1


async def _true(shell: Shell, arguments: Sequence[str]) -> int:
    return 0


async def _false(shell: Shell, arguments: Sequence[str]) -> int:
    return 1


async def _pwd(shell: Shell, arguments: Sequence[str]) -> int:
    await shell.io.write(f"{shell.directory}\n")
    return 0


async def _cd(shell: Shell, arguments: Sequence[str]) -> int:
    path = arguments[0] if arguments else shell.variables.get("HOME", "/")
    absolute = shell.machine.resolve_path(path, shell.directory)
    if not shell.machine.is_directory(absolute):
        await shell.io.write_error(f"sh: cd: can't cd to {path}: No such file or directory\n")
        return 2
    shell.directory = absolute
    return 0


async def _exit(shell: Shell, arguments: Sequence[str]) -> int:
    if not arguments:
        raise ShellExit(shell.code)
    if not arguments[0].isdecimal():
        await shell.io.write_error(f"sh: exit: Illegal number: {arguments[0]}\n")
        raise ShellExit(2)
    raise ShellExit(int(arguments[0][-9:]) % 256)


async def _export(shell: Shell, arguments: Sequence[str]) -> int:
    for word in arguments:
        name, equals, value = word.partition("=")
        if equals:
            shell.variables[name] = value
        shell.exported.add(name)
    return 0


async def _unset(shell: Shell, arguments: Sequence[str]) -> int:
    for name in arguments:
        shell.variables.pop(name, None)
    return 0


async def _exec(shell: Shell, arguments: Sequence[str]) -> int:
    if arguments:
        raise ShellExit(await shell.run_words(arguments))
    return 0


async def _help(shell: Shell, arguments: Sequence[str]) -> int:
    names = sorted({*PROGRAMS, *BUILTINS, *SHELLS} - {"["})
    await shell.io.write(f"This container is simulated. Commands: {' '.join(names)}\n")
    return 0


PROGRAMS: Mapping[str, Program] = {
    "[": _bracket, "cat": _cat, "date": _date, "echo": _echo, "env": _env, "false": _false, "hostname": _hostname, "id": _id,
    "ls": _ls, "printenv": _printenv, "ps": _ps, "pwd": _pwd, "sleep": _sleep, "tar": _tar, "test": _test, "true": _true,
    "uname": _uname, "whoami": _whoami,
}  # fmt: skip
"""What exec can run, besides shells."""
BUILTINS: Mapping[str, Program] = {
    ":": _true, "cd": _cd, "exec": _exec, "exit": _exit, "export": _export, "help": _help, "unset": _unset,
}  # fmt: skip
"""What only a shell can run."""
