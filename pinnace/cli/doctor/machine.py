"""What a check finds, and running all of them at once, each with its deadline.

What the machine has: Python and packages, etcd, room on the disk and in memory, file descriptors, ports.

The client's configuration: is it one, does its context lead anywhere, who can read its keys, how long certificates last.
"""

import asyncio
import inspect
import os
import platform
import re
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from pinnace.cli.settings import Settings
from pinnace.cli.terminal import one_line
from pinnace.client.config import ClientConfig, ConfigError, config_path, found, load
from pinnace.client.contexts import CURRENT
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.etcd import EtcdMissing, find_etcd
from pinnace.cluster.processes import Ports

DEADLINE = 8.0
"""Seconds for one check: a little more than the longest of what it asks."""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, and will not always."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is what was looked at, `hint` what to do about it."""

    level: Level
    check: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """`look` is a coroutine function; or it blocks, and so has a thread of its own."""

    name: str
    look: "Callable[[], Any]"


def ok(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def warning(check: str, message: str, hint: str = "") -> Finding:
    return Finding(Level.WARNING, check, message, hint)


def problem(check: str, message: str, hint: str = "") -> Finding:
    return Finding(Level.PROBLEM, check, message, hint)


def text(findings: Sequence[Finding]) -> str:
    """A line for each; and one below it for what to do."""
    lines = []
    for each in findings:
        lines.append(f"{each.level:<9}{each.check:<15}{one_line(each.message)}")
        if each.hint:
            lines.append(f"{'':<24}hint: {one_line(each.hint)}")
    return "".join(f"{line}\n" for line in lines)


async def run(checks: Sequence[Check], deadline: float = DEADLINE) -> list[Finding]:
    """What all of them find, in their order. One that fails, or does not end in time, has found that."""
    found = await asyncio.gather(*(_run(check, deadline) for check in checks))
    return [finding for each in found for finding in each]


async def _run(check: Check, deadline: float) -> Sequence[Finding]:
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            return await (check.look() if inspect.iscoroutinefunction(check.look) else _in_thread(check.look))
    except TimeoutError as error:
        if not limit.expired():
            return [problem(check.name, f"could not be checked: {error or 'no answer in time'}")]
        return [problem(check.name, f"could not be checked in {deadline:g} s")]
    except Exception as error:
        return [problem(check.name, f"could not be checked: {type(error).__name__}: {error}")]


async def _in_thread(look: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    """In a thread that the end of the program does not wait for: a file system that hangs may keep it for ever."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Finding]] = loop.create_future()

    def tell(found: Sequence[Finding] | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def body() -> None:
        found, failure = None, None
        try:
            found = look()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=body, daemon=True).start()
    return await answer


GIB = 1 << 30
DISK = (GIB // 4, 2 * GIB)
"""Less than the first is a problem, less than the second a warning. etcd's data grows to 2 GiB at most; logs come on top."""
MEMORY = (GIB // 4, GIB)
"""Likewise. A cluster of the default size takes about half a GiB."""
FILES = (256, 1024)
"""Likewise: each process has a descriptor for every connection and file."""
_MEMINFO = Path("/proc/meminfo")


def python(version: tuple[int, ...] | None = None) -> Sequence[Finding]:
    least = _numbers(metadata.metadata("pinnace")["Requires-Python"])
    have = version or sys.version_info[:3]
    if have < least:
        return [problem("python", f"{_dotted(have)}, and {_dotted(least)} is needed", "install pinnace with a newer Python")]
    return [ok("python", f"{_dotted(have)} on {platform.system()}")]


def packages(needed: Iterable[str] | None = None, installed: Callable[[str], str] = metadata.version) -> Sequence[Finding]:
    """`needed`: as a package's metadata have them, such as "grpcio<2,>=1.83"."""
    wrong, checked = [], 0
    for each in metadata.requires("pinnace") or [] if needed is None else needed:
        requirement, _, marker = each.partition(";")
        name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
        bounds = dict(re.findall(r"(>=|<)\s*([\d.]+)", requirement))
        if marker or not bounds:
            continue
        checked += 1
        try:
            have = installed(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if _numbers(have) < _numbers(bounds.get(">=", "")):
            wrong.append(f"{name} is {have}, and {bounds['>=']} is needed")
        if "<" in bounds and _numbers(have) >= _numbers(bounds["<"]):
            wrong.append(f"{name} is {have}, and one before {bounds['<']} is needed")
    if wrong:
        return [problem("packages", "; ".join(wrong), f"{sys.executable} -m pip install --upgrade pinnace")]
    return [ok("packages", f"all {checked} are as needed")]


def etcd(*, elsewhere: bool) -> Sequence[Finding]:
    """`elsewhere`: the cluster is not on this machine, and so needs no etcd here."""
    try:
        found = find_etcd()
    except EtcdMissing as error:
        tell = warning if elsewhere else problem
        return [tell("etcd", f"{error}: `pinnace up` cannot start a cluster", error.hint)]
    said = f"{_dotted(found.version)} ({found.path})"
    if found.fallback:
        return [
            warning("etcd", f"{said}: 3.5.0 to 3.5.2 can lose writes when killed", "install 3.5.3 or later, and put it on PATH")
        ]
    return [ok("etcd", said)]


def disk(folder: Path, free: int | None = None) -> Sequence[Finding]:
    """Of the folder, or the one in which it would be made. `free`: bytes."""
    there = next(each for each in (folder, *folder.parents) if _exists(each))
    left = shutil.disk_usage(there).free if free is None else free
    return [_enough("disk", left, DISK, f"{_size(left)} free for {folder}", "free some space, or use another --data-dir")]


def _exists(path: Path) -> bool:
    """False, too, where the user may not look."""
    try:
        return path.exists()
    except PermissionError:
        return False


def memory(available: int | None = None) -> Sequence[Finding]:
    if available is None:
        try:
            found = re.search(r"^MemAvailable:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
        except OSError:
            found = None
        if found is None:
            return [ok("memory", "this system does not say how much is available")]
        available = int(found[1]) * 1024
    hint = "end other programs, or start a smaller cluster: pinnace up --nodes 5 --schedulers 1 --apiservers 1"
    return [_enough("memory", available, MEMORY, f"{_size(available)} available", hint)]


def files(limit: int | None = None) -> Sequence[Finding]:
    """`limit`: of open files, up to which a process may raise its own, as ours do."""
    if limit is None:
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return [ok("files", "a process may open as many as it likes")]
    hint = f"as root: ulimit -n {FILES[1] * 4}, before `pinnace up`; or nofile in /etc/security/limits.conf"
    return [_enough("files", limit, FILES, f"a process may open {limit:,}", hint)]


def ports() -> Sequence[Finding]:
    try:
        return [ok("ports", f"{Ports().next()} and others on 127.0.0.1 are free")]
    except ClusterError as error:
        return [problem("ports", error.message, error.hint)]


def _enough(check: str, have: int, bounds: tuple[int, int], message: str, hint: str) -> Finding:
    least, comfortable = bounds
    if have >= comfortable:
        return ok(check, message)
    return (warning if have >= least else problem)(check, message, hint)


def _numbers(version: str) -> tuple[int, ...]:
    """ ">=3.11" is (3, 11)."""
    found = re.search(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _size(number: int) -> str:
    return f"{number / GIB:,.1f} GiB"


CHECK = "configuration"


def configuration(settings: Settings) -> tuple[ClientConfig | None, Sequence[Finding]]:
    """Where the API servers are; None: nobody knows."""
    path = config_path()
    try:
        document = found(path)
        if document is None and not (settings.server or os.environ.get("PINNACE_SERVER")):
            return None, [warning(CHECK, f"{path} does not exist: no cluster is known", ConfigError("").hint)]
        config = load(settings.server, context=settings.context)
    except ConfigError as error:
        return None, [problem(CHECK, str(error), error.hint)]
    context = settings.context or (document or {}).get(CURRENT)
    where = f'{path}, context "{context}"' if context else "no context"
    return config, [ok(CHECK, f"{where}: {', '.join(config.endpoints)}")]


def keys(paths: Iterable[Path]) -> Sequence[Finding]:
    """Private keys, and files with tokens in them: nobody else is to read them."""
    findings, count = [], 0
    for path in paths:
        try:
            mode = path.stat().st_mode
            readable = os.access(path, os.R_OK)
        except OSError as error:
            findings.append(problem("keys", f"{path}: {error.strerror}", "make it anew (`pinnace pki`), or correct its path"))
            continue
        count += 1
        if not readable:
            findings.append(problem("keys", f"{path} cannot be read", f"become its owner, or chown {path}"))
        elif path.suffix == ".key" and b"PRIVATE KEY-----" not in path.read_bytes():
            findings.append(problem("keys", f"{path} is no private key in PEM", "put back what was there"))
        elif mode & 0o077:
            findings.append(warning("keys", f"others can read {path}", f"chmod 600 {path}"))
    return findings or ([ok("keys", f"{count} that only you can read")] if count else [])


def certificates(paths: Iterable[Path], renewal: Callable[[Path], str], now: datetime | None = None) -> Sequence[Finding]:
    """Whether they are valid now, and for how long. `renewal`: how this one is renewed."""
    from cryptography import x509

    from pinnace.pki.folder import RENEW_BEFORE

    now = now or datetime.now(UTC)
    findings, ends = [], []
    for path in paths:
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except OSError as error:
            findings.append(problem("certificates", f"{path}: {error.strerror}", renewal(path)))
            continue
        except ValueError:
            findings.append(problem("certificates", f"{path}: it is no certificate in PEM", f"remove it; {renewal(path)}"))
            continue
        end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        ends.append(end)
        if end <= now:
            findings.append(problem("certificates", f"{path} has ended on {end:%Y-%m-%d}", renewal(path)))
        elif begin > now:
            clock = "set this machine's clock, which is behind that of who made it"
            findings.append(problem("certificates", f"{path} is valid only from {begin:%Y-%m-%d %H:%M} UTC on", clock))
        elif end - RENEW_BEFORE <= now:
            findings.append(warning("certificates", f"{path} ends on {end:%Y-%m-%d}", renewal(path)))
    if findings or not ends:
        return findings
    return [ok("certificates", f"{len(ends)} are valid, until {min(ends):%Y-%m-%d} at least")]
