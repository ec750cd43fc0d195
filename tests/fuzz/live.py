"""The server under fire: a process of its own, before an etcd of its own, that talks to nobody without a certificate."""

import os
import re
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from pinnace.cluster import certificates
from pinnace.cluster.spec import NO_ACCOUNTS
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.tls import TlsFiles
from tests.conftest import free_port
from tests.fuzz.shots import Who
from tests.integration.processes import Component

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
_OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?P<level>[DIWEC]) apiserver \S+: .*")
_GRPCS = re.compile(r"[IWEF]\d{4} .*|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR")
_STREAMS = re.compile(r"^apiserver_longrunning_requests\{([^}]*)\} (\S+)$", re.MULTILINE)


class Usage(NamedTuple):
    """What the server holds. `rss`: MB (10^6) in memory; `streams`: those that are open."""

    rss: float
    files: int
    streams: int


class Live:
    def __init__(self, folder: Path, process: Component, token_address: str) -> None:
        self._folder = folder
        self.process = process
        self._token_address = token_address

    def address(self, who: Who) -> str:
        return self._token_address if who is Who.STRANGER else self.process.address

    def tls(self, who: Who) -> TlsFiles:
        if who is Who.STRANGER:
            return TlsFiles(self._folder / "ca.crt")
        return certificates.component_files(self._folder, who.value)

    def channel(self, who: Who) -> grpc.aio.Channel:
        """A connection of its own."""
        return grpc.aio.secure_channel(self.address(who), self.tls(who).read().for_channel(), options=_OPTIONS)

    def usage(self) -> Usage:
        proc = Path(f"/proc/{self.process.process.pid}")
        rss = next(int(line.split()[1]) for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS:"))
        return Usage(rss * 1024 / 1e6, len(list((proc / "fd").iterdir())), sum(self._streams().values()))

    def cpu(self) -> float:
        """Seconds that the server has used."""
        fields = Path(f"/proc/{self.process.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> str:
        """What is open, by kind and number."""
        names = (path.readlink().name.partition(":")[0] for path in Path(f"/proc/{self.process.process.pid}/fd").iterdir())
        return ", ".join(f"{count} {name}" for name, count in Counter(names).items())

    def log_problems(self) -> list[str]:
        return problems_in(self.process.log())

    def _streams(self) -> Mapping[str, int]:
        with urllib.request.urlopen(f"http://{self.process.http}/metrics", timeout=10) as answer:
            return {what: int(float(count)) for what, count in _STREAMS.findall(answer.read().decode())}


@asynccontextmanager
async def live(folder: Path, etcd: str) -> AsyncIterator[Live]:
    """`etcd`: its address; it must be empty."""
    pki = folder / "pki"
    certificates.create_certificates(pki, ["127.0.0.1:1"], {Who.FLEET.value: ["edge-*"]})
    PkiFolder(pki).provide([CertificateSpec(Who.NOBODY.value, Subject("nobody"))], datetime.now(UTC))
    tokens = pki / "tokens.csv"
    tokens.write_text("s3cret,eve,1,\n")
    shown, token_address = certificates.component_files(pki, "apiserver"), f"127.0.0.1:{free_port()}"
    arguments = (
        "--tls-cert-file", f"{shown.cert}", "--tls-private-key-file", f"{shown.key}", "--client-ca-file", f"{shown.ca}",
        "--token-auth-file", f"{tokens}", "--token-listen", token_address, "--etcd", etcd,
        *certificates.account_key_arguments(pki), *NO_ACCOUNTS,
        "--logging-format", "text",  # in which a caller could forge a line
    )  # fmt: skip
    process = Component(folder, "apiserver", "apiserver", *arguments, insecure=False)
    try:
        await process.ready()
        yield Live(pki, process, token_address)
    finally:
        process.kill()


def problems_in(log: str) -> list[str]:
    """Lines of the log that a server which is well does not write, each with the end of its traceback; and such as are no lines
    of a log, which somebody else has dictated."""
    result: list[list[str]] = []
    record: list[str] | None = None  # what continues the line before
    for line in log.split("\n")[:-1]:
        ours = _OURS.fullmatch(line)
        if ours is not None:
            record = [f"in the log: {line[:500]}"] if ours["level"] in "EC" else None
            result += [record] if record is not None else []
        elif record is not None:
            record.append(line[:500])
        elif not _GRPCS.fullmatch(line):
            result.append([f"in the log, and no line of a log: {line[:500]!r}"])
    return [" ... ".join((lines[0], *lines[1:][-1:])) for lines in result]
