"""The framework of `pinnace doctor`, and its checks of the machine and of the client configuration.

All checks run concurrently, each with a deadline.
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
from pinnace.client.config import (
    ClientConfig,
    ConfigError,
    Configuration,
    configuration_in_use,
    gateway_of,
    load_config,
    read_configuration,
)
from pinnace.client.contexts import stale_contexts
from pinnace.client.kubeconfig_file import describe_risks
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.etcd import EtcdMissing, find_etcd
from pinnace.cluster.processes import PortAllocator

DEADLINE = 8.0
"""Deadline of one check, in seconds. It exceeds the longest timeout within a check."""
GIB = 1 << 30
DISK = (GIB // 4, 2 * GIB)
"""Less than the first value is a problem, less than the second a warning. The data of etcd is limited to 2 GiB; logs need
additional space."""
MEMORY = (GIB // 4, GIB)
"""Thresholds for available memory. A cluster of the default size uses about 0.5 GiB."""
FILES = (256, 1024)
"""Thresholds for file descriptors. A process uses one for each connection and file."""
_MEMINFO = Path("/proc/meminfo")
CHECK = "configuration"


class FindingLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """The cluster works, but a problem is likely."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `hint` is the recommended action."""

    level: FindingLevel
    check: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check. `look` is a coroutine function, or a blocking function, which runs in a thread."""

    name: str
    look: "Callable[[], Any]"


def build_ok(check: str, message: str) -> Finding:
    return Finding(FindingLevel.OK, check, message)


def build_warning(check: str, message: str, hint: str = "") -> Finding:
    return Finding(FindingLevel.WARNING, check, message, hint)


def build_problem(check: str, message: str, hint: str = "") -> Finding:
    return Finding(FindingLevel.PROBLEM, check, message, hint)


def format_findings(findings: Sequence[Finding]) -> str:
    """Return one line for each finding, and a second line for its hint."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<9}{finding.check:<15}{one_line(finding.message)}")
        if finding.hint:
            lines.append(f"{'':<24}hint: {one_line(finding.hint)}")
    return "".join(f"{line}\n" for line in lines)


async def run_checks(checks: Sequence[DoctorCheck], deadline: float = DEADLINE) -> list[Finding]:
    """Run all checks and return their findings in order. A failure or timeout of a check is a finding."""
    result = await asyncio.gather(*(_run_check(check, deadline) for check in checks))
    return [finding for findings in result for finding in findings]


async def _run_check(check: DoctorCheck, deadline: float) -> Sequence[Finding]:
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            return await (check.look() if inspect.iscoroutinefunction(check.look) else _in_thread(check.look))
    except TimeoutError as error:
        if not limit.expired():
            return [build_problem(check.name, f"check failed: {error or 'no response in time'}")]
        return [build_problem(check.name, f"check timed out after {deadline:g} s")]
    except Exception as error:
        return [build_problem(check.name, f"check failed: {type(error).__name__}: {error}")]


async def _in_thread(look: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    """Run the function in a daemon thread, so that a file system without response does not block the exit of the program."""
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
        with suppress(RuntimeError):  # the loop is closed and no task waits for the result
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=body, daemon=True).start()
    return await answer


def check_python(version: tuple[int, ...] | None = None) -> Sequence[Finding]:
    least = _parse_version(metadata.metadata("pinnace")["Requires-Python"])
    have = version or sys.version_info[:3]
    if have < least:
        return [
            build_problem(
                "python", f"{_format_version(have)}: {_format_version(least)} or later is required", "install a newer Python"
            )
        ]
    return [build_ok("python", f"{_format_version(have)} on {platform.system()}")]


def check_packages(
    needed: Iterable[str] | None = None, installed: Callable[[str], str] = metadata.version
) -> Sequence[Finding]:
    """Check the installed packages. `needed` are requirements in the syntax of package metadata, such as "grpcio<2,>=1.83"."""
    wrong, checked = [], 0
    for require in metadata.requires("pinnace") or [] if needed is None else needed:
        requirement, _, marker = require.partition(";")
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
        if _parse_version(have) < _parse_version(bounds.get(">=", "")):
            wrong.append(f"{name} {have}: {bounds['>=']} or later is required")
        if "<" in bounds and _parse_version(have) >= _parse_version(bounds["<"]):
            wrong.append(f"{name} {have}: a version before {bounds['<']} is required")
    if wrong:
        return [build_problem("packages", "; ".join(wrong), f"{sys.executable} -m pip install --upgrade pinnace")]
    return [build_ok("packages", f"all {checked} have a supported version")]


def check_etcd(*, elsewhere: bool) -> Sequence[Finding]:
    """Check the installed etcd. `elsewhere`: the cluster is not on this machine, so no local etcd is required."""
    try:
        etcd_binary = find_etcd()
    except EtcdMissing as error:
        tell = build_warning if elsewhere else build_problem
        return [tell("etcd", f"{error}: `pinnace up` cannot start a cluster", error.hint)]
    said = f"{_format_version(etcd_binary.version)} ({etcd_binary.path})"
    if etcd_binary.fallback:
        return [build_warning("etcd", f"{said}: 3.5.0 to 3.5.2 can lose writes when killed", "install 3.5.3 or later on PATH")]
    return [build_ok("etcd", said)]


def check_disk(folder: Path, free: int | None = None) -> Sequence[Finding]:
    """Check the file system of the directory, or of its nearest existing parent. `free` is in bytes."""
    there = next(parent for parent in (folder, *folder.parents) if _path_exists(parent))
    left = shutil.disk_usage(there).free if free is None else free
    return [
        _compare_with_bounds(
            "disk", left, DISK, f"{_format_size(left)} free for {folder}", "free disk space, or use another --data-dir"
        )
    ]


def _path_exists(path: Path) -> bool:
    """Return false also if permission is denied."""
    try:
        return path.exists()
    except PermissionError:
        return False


def check_memory(available: int | None = None) -> Sequence[Finding]:
    if available is None:
        try:
            match = re.search(r"^MemAvailable:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
        except OSError:
            match = None
        if match is None:
            return [build_ok("memory", "the available memory cannot be determined")]
        available = int(match[1]) * 1024
    hint = "stop other programs, or start a smaller cluster: pinnace up --nodes 5 --schedulers 1 --apiservers 1"
    return [_compare_with_bounds("memory", available, MEMORY, f"{_format_size(available)} available", hint)]


def check_open_files(limit: int | None = None) -> Sequence[Finding]:
    """Check the limit of open files. `limit` is the hard limit of open files, to which each component raises its soft limit."""
    if limit is None:
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return [build_ok("files", "no limit")]
    hint = f"run ulimit -n {FILES[1] * 4} as root before `pinnace up`, or set nofile in /etc/security/limits.conf"
    return [_compare_with_bounds("files", limit, FILES, f"limit of {limit:,} for each process", hint)]


def check_ports() -> Sequence[Finding]:
    try:
        return [build_ok("ports", f"{PortAllocator().next()} and others on 127.0.0.1 are free")]
    except ClusterError as error:
        return [build_problem("ports", error.message, error.hint)]


def _compare_with_bounds(check: str, have: int, bounds: tuple[int, int], message: str, hint: str) -> Finding:
    least, comfortable = bounds
    if have >= comfortable:
        return build_ok(check, message)
    return (build_warning if have >= least else build_problem)(check, message, hint)


def _parse_version(version: str) -> tuple[int, ...]:
    """Parse the first version number: ">=3.11" is (3, 11)."""
    match = re.search(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _format_version(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _format_size(number: int) -> str:
    return f"{number / GIB:,.1f} GiB"


def check_configuration(settings: Settings) -> tuple[ClientConfig | None, Sequence[Finding]]:
    """Load the kubeconfig; None if no API server is configured."""
    try:
        files, context = configuration_in_use(settings.context, settings.kubeconfig)
        if not files.exists and not (settings.server or os.environ.get("PINNACE_SERVER")):
            return None, [build_warning(CHECK, f"{files.shown} does not exist: no cluster is configured", ConfigError("").hint)]
        config = load_config(settings.server, context=settings.context, file=settings.kubeconfig, can_impersonate=True)
    except ConfigError as error:
        return None, [build_problem(CHECK, str(error), error.hint)]
    where = f'{files.shown}, context "{context}"' if files.is_ours(context) else "no context"
    return config, [build_ok(CHECK, f"{where}: {', '.join(config.endpoints)}"), *_check_file_permissions(files)]


def _check_file_permissions(files: Configuration) -> Sequence[Finding]:
    result = [(path, risk) for path in files.documents if (risk := describe_risks(path))]
    return [build_warning(CHECK, f"{path}: {risk}, and so redirect commands", f"chmod go-w {path}") for path, risk in result]


def check_contexts(
    settings: Settings, expected: ClientConfig | None, is_dead: Callable[[Path], bool], flag: Callable[[Path], str]
) -> Sequence[Finding]:
    """Check the contexts in the kubeconfig. `expected`: the addresses of the local cluster, if there is one. `flag` returns the
    option that names a data directory."""
    result, findings = read_configuration(settings.kubeconfig), []
    if expected is not None and expected.data_dir is not None:
        where = flag(expected.data_dir)
        names = [name for name in result.our_contexts() if result.data_dir_of(result.cluster_of(name)) == expected.data_dir]
        start = f"`pinnace start{where}` writes it"
        if not names:
            findings.append(
                build_warning("contexts", f"{result.shown} has no context of the cluster in {expected.data_dir}", start)
            )
        elif (cluster := result.find("cluster", result.cluster_of(names[0]))) is not None:
            gateway = gateway_of(cluster.value)
            if gateway != expected.gateway:
                message = (
                    f'context "{names[0]}" names {gateway or "no gateway"}; the gateway is {expected.gateway or "not there"}'
                )
                findings.append(build_problem("contexts", message, start))
            if result.current not in names:
                message = f"kubectl uses {f'the context {result.current!r}' if result.current else 'no context'}"
                hint = f"`kubectl config use-context {names[0]}`, or --context {names[0]}"
                findings.append(build_warning("contexts", f"{message}, not {names[0]}", hint))
    for name, data_dir in stale_contexts(is_dead, file=settings.kubeconfig).items():
        hint = f"`pinnace down{flag(data_dir)}` removes it"
        findings.append(build_warning("contexts", f'context "{name}": there is no cluster in {data_dir} any more', hint))
    ours = ", ".join(result.our_contexts())
    return findings or ([build_ok("contexts", f"{ours} in {result.shown}")] if ours else [])


def check_private_keys(paths: Iterable[Path]) -> Sequence[Finding]:
    """Check that private keys and token files are readable by the owner only."""
    findings, count = [], 0
    for path in paths:
        try:
            mode = path.stat().st_mode
            readable = os.access(path, os.R_OK)
        except OSError as error:
            findings.append(
                build_problem("keys", f"{path}: {error.strerror}", "recreate it with `pinnace pki`, or correct its path")
            )
            continue
        count += 1
        if not readable:
            findings.append(build_problem("keys", f"{path} cannot be read", f"change its owner: chown {path}"))
        elif path.suffix == ".key" and b"PRIVATE KEY-----" not in path.read_bytes():
            findings.append(build_problem("keys", f"{path} is not a PEM private key", "restore the file"))
        elif mode & 0o077:
            findings.append(build_warning("keys", f"others can read {path}", f"chmod 600 {path}"))
    return findings or ([build_ok("keys", f"{count} with access for the owner only")] if count else [])


def check_certificates(paths: Iterable[Path], renewal: Callable[[Path], str], now: datetime | None = None) -> Sequence[Finding]:
    """Check the validity periods. `renewal` returns the command that renews a certificate."""
    from cryptography import x509

    from pinnace.pki.folder import RENEW_BEFORE

    now = now or datetime.now(UTC)
    findings, ends = [], []
    for path in paths:
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except OSError as error:
            findings.append(build_problem("certificates", f"{path}: {error.strerror}", renewal(path)))
            continue
        except ValueError:
            findings.append(build_problem("certificates", f"{path}: not a PEM certificate", f"delete it; {renewal(path)}"))
            continue
        end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        ends.append(end)
        if end <= now:
            findings.append(build_problem("certificates", f"{path} expired on {end:%Y-%m-%d}", renewal(path)))
        elif begin > now:
            clock = "correct the clock of this machine, which is behind the one of the machine that created the certificate"
            findings.append(build_problem("certificates", f"{path} is not valid before {begin:%Y-%m-%d %H:%M} UTC", clock))
        elif end - RENEW_BEFORE <= now:
            findings.append(build_warning("certificates", f"{path} expires on {end:%Y-%m-%d}", renewal(path)))
    if findings or not ends:
        return findings
    return [build_ok("certificates", f"{len(ends)} are valid until at least {min(ends):%Y-%m-%d}")]
