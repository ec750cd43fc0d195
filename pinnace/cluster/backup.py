"""Backups of local clusters: one file with etcd's snapshot, the certificates and keys, and the configuration.

    pinnace backup FILE    a running member of etcd --snapshot--> FILE.part --renamed--> FILE
    pinnace restore FILE   FILE --checked--> a new folder, a member of etcd restored for each one there was --> `pinnace start`

    manifest.json          version, time, and the SHA-256 of each file below
    cluster.json           the state of the cluster (pinnace.cluster.spec)
    etcd.db                the snapshot
    pki/..., config/...    the files of these folders

A backup is consistent: etcd's snapshot is one revision. It contains keys of the authorities and the values of Secrets, so only
its owner can read it. It does not contain logs and the volumes of pods. The restored cluster is the same cluster, in another
folder or on another machine: it has the same identity, certificates, objects and command lines. A backup contains code (the
scheduler's plugins) and command lines, so restore only files that you trust.

Sources: https://etcd.io/docs/v3.5/op-guide/recovery/ and the API of the grpc-gateway (v3/maintenance/snapshot).
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from pinnace.client.config import ClientConfig
from pinnace.cluster import certificates
from pinnace.cluster.errors import AlreadyRunning, ClusterError, FolderError
from pinnace.cluster.etcd import EtcdBinary, etcd_environment, read_version
from pinnace.cluster.folder import MARK, ClusterFolder
from pinnace.cluster.processes import PortAllocator, find_running, is_port_free
from pinnace.cluster.spec import (
    ETCD,
    GATEWAY,
    ClusterState,
    ProcessPlan,
    ProcessRecord,
    StateError,
    decode_state,
    encode_state,
    etcd_data_dir,
    kubeconfig_file,
    listening_addresses,
    pki_folder,
)
from pinnace.runtime.build import build_version
from pinnace.runtime.tls import TlsFiles

FORMAT = 1
MANIFEST, STATE, SNAPSHOT = "manifest.json", "cluster.json", "etcd.db"
FOLDERS = ("pki", "config")
SNAPSHOT_TIMEOUT = 60.0
"""Seconds without data from etcd."""
RESTORE_TIMEOUT = 300.0
"""Seconds for the restore of one member."""
MAX_TEXT = 64 << 20
"""Bytes of the manifest and the state. The snapshot has no limit."""
SHA256_SIZE = 32
_PIN = "--stay-on-cpu"


class BackupError(ClusterError):
    """The backup cannot be written, or the file is no backup, or is damaged."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """`size` in bytes. `etcd`: its version."""

    size: int
    etcd: str


def write_backup(state: ClusterState, path: Path) -> BackupSummary:
    """Write a backup of a running cluster. `path` must not exist. The file appears when it is complete. Raises ClusterError."""
    if path.exists():
        raise BackupError(f"{path} exists", hint="name another file")
    folder = state.spec.data_dir
    draft = path.with_name(f"{path.name}.part")
    try:
        with _open_private(draft) as target, _open_private(path.with_name(f"{path.name}.db")) as snapshot:
            version = _download_snapshot(state, snapshot)
            _write_archive(target, state, snapshot, folder, version)
            target.flush()
            os.fsync(target.fileno())
            draft.rename(path)
            return BackupSummary(path.stat().st_size, version)
    except OSError as error:
        raise BackupError(f"{path} cannot be written: {error.strerror or error}", hint="name another file") from error


def restore_backup(path: Path, data_dir: Path, binary: EtcdBinary) -> ClusterState:
    """Restore a backup as a stopped cluster in `data_dir`, which must not contain a cluster. After an error the folder is as
    before. Raises ClusterError."""
    folder = ClusterFolder(data_dir)
    try:
        with tarfile.open(path, "r:gz") as archive:
            manifest, state = _read_description(archive, path)
            _check_etcd(manifest, binary)
            made = folder.create()
            try:
                with folder.locked():
                    return _restore(archive, manifest, state, folder, made, binary)
            except BaseException:
                folder.remove_empty_directories(made)
                raise
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror or error}") from error


# -- Backup ---------------------------------------------------------------------------------------


@contextmanager
def _open_private(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its owner can read. It is removed at the end, unless it was renamed."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


def _download_snapshot(state: ClusterState, target: IO[bytes]) -> str:
    """Write the snapshot of the first member that answers. Return the version of etcd. Raises BackupError."""
    members = [record for record in state.processes_of(ETCD) if find_running(record)]
    if not members:
        raise BackupError("etcd does not run, so it cannot be saved", hint="start it with `pinnace start`")
    tls, problem = certificates.etcd_client_files(pki_folder(state.spec.data_dir)), ""
    for record in members:
        target.seek(0)
        target.truncate()
        try:
            for blob in _stream_snapshot(record.plan.address, tls):
                target.write(blob)
        except (HTTPException, URLError, ValueError, KeyError, TimeoutError, ConnectionError) as error:
            problem = f"{record.name}: {error}"
            continue
        target.flush()
        if target.tell() % 512 == SHA256_SIZE:  # a database of whole pages, and its digest
            version = read_version(Path(record.plan.argv[0]))
            return ".".join(map(str, version)) if version else ""
        problem = f"{record.name}: its snapshot is incomplete"
    raise BackupError(f"no member of etcd sent a snapshot: {problem}", hint="see the logs of etcd")


def _stream_snapshot(endpoint: str, tls: TlsFiles) -> Iterator[bytes]:
    context = tls.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    with opener.open(f"https://{endpoint}/v3/maintenance/snapshot", b"{}", SNAPSHOT_TIMEOUT) as answer:
        for line in answer:
            message = json.loads(line)
            if "result" not in message:
                raise ValueError(str(message.get("error", "no snapshot")))
            yield base64.b64decode(message["result"].get("blob", ""))


def _write_archive(target: IO[bytes], state: ClusterState, snapshot: IO[bytes], folder: Path, version: str) -> None:
    texts = {STATE: encode_state(state).encode()}
    files = {
        str(file.relative_to(folder)): file
        for name in FOLDERS
        for file in sorted((folder / name).rglob("*"))
        if file.is_file() and file.name != MARK
    }
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in texts.items()}
    digests[SNAPSHOT] = _digest(snapshot)
    contents = {name: file.read_bytes() for name, file in files.items()}
    digests |= {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = {"format": FORMAT, "pinnace": build_version(), "etcd": version, "created": time.time(), "files": digests}
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as archive:
        for name, data in ({MANIFEST: json.dumps(manifest, indent=2).encode()} | texts | contents).items():
            _add(archive, name, io.BytesIO(data), len(data))
        size = snapshot.seek(0, os.SEEK_END)
        snapshot.seek(0)
        _add(archive, SNAPSHOT, snapshot, size)


def _add(archive: tarfile.TarFile, name: str, data: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
    archive.addfile(entry, data)


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


# -- Restore --------------------------------------------------------------------------------------


def _read_description(archive: tarfile.TarFile, path: Path) -> tuple[Mapping[str, object], ClusterState]:
    """Read the first two files of the archive. Raises BackupError, and the errors of a damaged archive."""
    manifest = json.loads(_read_next(archive, MANIFEST))
    if manifest["format"] != FORMAT:
        raise BackupError(
            f"{path} has format {manifest['format']}, and this version of pinnace reads {FORMAT}",
            hint=f"use pinnace {manifest['pinnace']}",
        )
    text = _read_next(archive, STATE)
    _compare(manifest, STATE, hashlib.sha256(text).hexdigest())
    try:
        return manifest, decode_state(text.decode())
    except StateError as error:
        raise _damaged(path, error) from error


def _read_next(archive: tarfile.TarFile, name: str) -> bytes:
    entry = archive.next()
    if entry is None or entry.name != name or not entry.isfile() or entry.size > MAX_TEXT:
        raise ValueError(f"it has no {name}")
    file = archive.extractfile(entry)
    assert file is not None
    return file.read()


def _compare(manifest: Mapping[str, object], name: str, digest: str) -> None:
    files = manifest["files"]
    if not isinstance(files, dict) or files.get(name) != digest:
        raise ValueError(f"{name} is not what was saved")


def _check_etcd(manifest: Mapping[str, object], binary: EtcdBinary) -> None:
    saved = tuple(int(part) for part in str(manifest["etcd"]).split(".") if part)
    if saved[:2] > binary.version[:2]:
        shown = ".".join(map(str, binary.version))
        raise BackupError(
            f"the backup is of etcd {manifest['etcd']}, and {binary.path} has version {shown}, which cannot read it",
            hint="set ETCD_BIN to a version that is not older",
        )


def _restore(
    archive: tarfile.TarFile,
    manifest: Mapping[str, object],
    saved: ClusterState,
    folder: ClusterFolder,
    made: Sequence[Path],
    binary: EtcdBinary,
) -> ClusterState:
    if folder.read() is not None:
        raise AlreadyRunning(
            f"a cluster is in {folder.path} already", hint="use another --data-dir, or remove it with `pinnace down`"
        )
    made = folder.remove_failed_start() or made
    tool = _find_restore_tool(binary)
    state, moved = move_state(saved, folder.path, binary, made)
    folder.claim_folder(state)
    snapshot = folder.path / "etcd" / SNAPSHOT
    try:
        with folder.translate_os_errors():
            _extract(archive, manifest, folder.path, snapshot)
            members = state.processes_of(ETCD)
            for record in members:
                _restore_member(tool, binary, record, snapshot)
            snapshot.unlink()
            certificates.update_addresses(pki_folder(folder.path), moved)
            _write_kubeconfig(state)
    except BaseException:
        snapshot.unlink(missing_ok=True)
        with suppress(FolderError):
            folder.remove(state)
        raise
    return state


def move_state(
    saved: ClusterState, data_dir: Path, binary: EtcdBinary, made: Sequence[Path]
) -> tuple[ClusterState, dict[str, str]]:
    """Return the state of the saved cluster, stopped, in another folder and with this etcd. Ports in use are replaced. Return
    also each listening address of the saved cluster with its present one."""
    allocator, moved = PortAllocator(), dict[str, str]()
    for record in saved.processes:
        for address in listening_addresses(record.plan):
            free = address in moved or is_port_free(address)
            moved.setdefault(address, address if free else f"127.0.0.1:{allocator.next()}")
    cpus = {str(cpu) for cpu in os.sched_getaffinity(0)}
    records = tuple(
        ProcessRecord(_move_plan(record.plan, saved.spec.data_dir, data_dir, binary, cpus).with_addresses(moved))
        for record in saved.processes
    )
    state = replace(
        saved,
        spec=replace(saved.spec, data_dir=data_dir),
        created=time.time(),
        made=tuple(made),
        processes=records,
        identity=uuid.uuid4().hex,
        stopped=True,
    )
    return state, moved


def _move_plan(plan: ProcessPlan, before: Path, after: Path, binary: EtcdBinary, cpus: set[str]) -> ProcessPlan:
    argv = [_move_path(argument, before, after) for argument in plan.argv]
    if plan.component == ETCD:
        argv[0] = str(binary.path)
        if not binary.can_skip_fsync:
            argv = [argument for argument in argv if argument != "--unsafe-no-fsync"]
    if _PIN in argv and argv[argv.index(_PIN) + 1] not in cpus:
        at = argv.index(_PIN)
        del argv[at : at + 2]
    environment = tuple((name, _move_path(value, before, after)) for name, value in plan.environment)
    return replace(plan, argv=tuple(argv), environment=environment)


def _move_path(text: str, before: Path, after: Path) -> str:
    """Replace the path of the folder, alone or followed by a slash, at the beginning of the text or behind "=" or ":"."""
    parts = text.split(str(before))
    result = parts[0]
    for part in parts[1:]:
        inside = (not result or result[-1] in "=:,") and (not part or part[0] in "/:,")
        result += f"{after if inside else before}{part}"
    return result


def _extract(archive: tarfile.TarFile, manifest: Mapping[str, object], folder: Path, snapshot: Path) -> None:
    """Write the files, and compare each with its digest. Raises ValueError for another file, and one that is missing."""
    files = manifest["files"]
    missing = set(files) - {STATE} if isinstance(files, dict) else set[str]()
    while (entry := archive.next()) is not None:
        path = snapshot if entry.name == SNAPSHOT else folder / entry.name
        parts = Path(entry.name).parts
        if (
            entry.name not in missing
            or not entry.isfile()
            or (path is not snapshot and parts[0] not in FOLDERS)
            or ".." in parts
        ):
            raise ValueError(f"{entry.name} does not belong to it")
        source = archive.extractfile(entry)
        assert source is not None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            _compare(manifest, entry.name, _digest(target))
        missing.discard(entry.name)
    if missing:
        raise ValueError(f"it has no {min(missing)}")


def _find_restore_tool(binary: EtcdBinary) -> Path:
    """Return etcdutl (from 3.5 on) or etcdctl, beside etcd or on PATH. Raises BackupError."""
    for name in ("etcdutl", "etcdctl") if binary.version >= (3, 5, 0) else ("etcdctl",):
        beside = binary.path.parent / name
        found = beside if os.access(beside, os.X_OK) else shutil.which(name)
        if found:
            return Path(found)
    raise BackupError(
        f"a backup is restored by etcdutl or etcdctl, and neither is beside {binary.path} or on PATH",
        hint="install it (`apt-get install etcd-client`, or https://etcd.io/docs/latest/install)",
    )


def _restore_member(tool: Path, binary: EtcdBinary, record: ProcessRecord, snapshot: Path) -> None:
    (target,) = etcd_data_dir(record.plan)
    names = ("--name=", "--initial-cluster=", "--initial-cluster-token=", "--initial-advertise-peer-urls=")
    flags = [argument for argument in record.plan.argv if argument.startswith(names)]
    command = [str(tool), "snapshot", "restore", str(snapshot), f"--data-dir={target}", *flags]
    environment = etcd_environment(os.environ) | {"ETCDCTL_API": "3"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RESTORE_TIMEOUT, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise BackupError(f"{tool.name} did not restore {record.name} within {RESTORE_TIMEOUT:g} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise BackupError(f"{tool.name} cannot restore {record.name}: {said[-1]}")


def _write_kubeconfig(state: ClusterState) -> None:
    data_dir = state.spec.data_dir
    gateway = next((record.plan.address for record in state.processes_of(GATEWAY)), "")
    if gateway:
        config = ClientConfig(tuple(state.endpoints), data_dir=data_dir, gateway=gateway)
        certificates.write_kubeconfig(kubeconfig_file(data_dir), pki_folder(data_dir), config)


def _damaged(path: Path, error: Exception) -> BackupError:
    return BackupError(f"{path} is no backup of pinnace, or is damaged: {error}", hint="`pinnace backup` writes one")
