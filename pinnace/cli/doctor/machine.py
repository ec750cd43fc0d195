"""What the machine has: Python and packages, etcd, room on the disk and in memory, file descriptors, ports."""

import platform
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path

from pinnace.cli.doctor.finding import Finding, ok, problem, warning
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.etcd import EtcdMissing, find_etcd
from pinnace.cluster.ports import Ports

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
