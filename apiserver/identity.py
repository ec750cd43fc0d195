"""Which cluster the keys in etcd belong to. An API server of another cluster refuses to serve them.

The first API server writes the identity to `/registry/cluster`: a random id, and the fingerprints of the certificate
authorities that its clients' certificates are from. Each server compares it with its own claim when it starts, whenever it
loads its state anew, and when its CA file changes:

    no key                                   --> write it (also beside data of a version that had none)
    --cluster-id given: the same id          --> agreed; authorities that are new are added
    --cluster-id given: another id           --> OtherCluster
    one authority in common, or none on both --> agreed; authorities that are new are added
    otherwise                                --> OtherCluster

Authorities are only added, never removed. So a CA can be rotated through a bundle that has the old and the new one, in any
order of servers. A server that has once agreed belongs to the cluster by its id: its CA file may then be replaced altogether.

What it does not promise: two clusters without TLS are told apart only by --cluster-id.
"""

import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from apiserver.storage.interface import Committed, KeyValue, OutOfSpace, Storage, StorageError, Write
from apiserver.uids import new_uid
from pinnace.api.resources import CLUSTER_KEY
from pinnace.runtime.clock import Clock
from pinnace.runtime.process import Fatal

log = logging.getLogger(__name__)

RETRY = 0.5
"""Seconds between two attempts while etcd does not answer."""
INTERVAL = 60.0
"""Seconds between two looks at the CA file."""
SHOWN = 16
"""Hexadecimal digits of a fingerprint in a message."""


class OtherCluster(Fatal):
    """The keys in etcd belong to another cluster."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`authorities`: SHA-256 of each certificate in DER, in hexadecimal; empty for servers without TLS."""

    id: str
    authorities: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        return json.dumps({"id": self.id, "authorities": sorted(self.authorities)}).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Identity":
        """Raises ValueError."""
        said = json.loads(value)
        if not isinstance(said, dict) or not isinstance(said.get("id"), str):
            raise ValueError("no id")
        return cls(said["id"], frozenset(map(str, said.get("authorities", ()))))


@dataclass(frozen=True, slots=True)
class Claim:
    """Which cluster a server says that it belongs to. `id`: "" when it does not say. `where`: the etcd, for messages."""

    id: str = ""
    authorities: Callable[[], frozenset[str]] = frozenset
    where: str = "etcd"


def authorities_in(path: Path) -> Callable[[], frozenset[str]]:
    """Reads the fingerprints of the certificates in a PEM file. While the file cannot be read, the last ones count."""
    last = frozenset[str]()

    def read() -> frozenset[str]:
        nonlocal last
        try:
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", path, error)
        else:
            last = frozenset(each.fingerprint(hashes.SHA256()).hex() for each in found)
        return last

    return read


def compare(found: Identity, own: Identity, where: str) -> Identity:
    """The identity as it is to be stored; the same as `found` if nothing is new. `own.id`: "" when it is not known. Raises
    OtherCluster."""
    if own.id:
        same = own.id == found.id
    else:
        same = bool(own.authorities & found.authorities) or not (own.authorities or found.authorities)
    if not same:
        raise OtherCluster(_refusal(found, own, where))
    return Identity(found.id, found.authorities | own.authorities)


def _refusal(found: Identity, own: Identity, where: str) -> str:
    message = f"{where} holds the cluster {_described(found)}, but this API server belongs to "
    message += f"the cluster {_described(own)}" if own.id else f"another one ({_authorities(own)})"
    message += "; give it an etcd of its own, or another --etcd-prefix"
    if not own.id:
        message += f". If it is the same cluster with a new CA, start it with --cluster-id {found.id}"
    return message


def _described(identity: Identity) -> str:
    return f"{identity.id} ({_authorities(identity)})"


def _authorities(identity: Identity) -> str:
    if not identity.authorities:
        return "without TLS"
    return "client CA SHA-256 " + ", ".join(sorted(f"{each[:SHOWN]}..." for each in identity.authorities))


class ClusterIdentity:
    """`check` before anything is written, and whenever the state was loaded anew; `run` it beside."""

    def __init__(self, storage: Storage, claim: Claim, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._claim = claim
        self._clock = clock
        self._rng = rng
        self._known = claim.id
        self._checked = frozenset[str]()

    async def check(self) -> None:
        """Returns when the cluster is known to be this server's. Tries until etcd answers. Raises OtherCluster."""
        while True:
            try:
                await self._attempt()
                return
            except OutOfSpace:
                log.warning("etcd is out of space: the identity of the cluster cannot be written")
                return
            except StorageError as error:
                log.warning("the cluster's identity cannot be read yet: %s", error)
                await self._clock.sleep(RETRY)

    async def run(self) -> None:
        """Records new authorities of the CA file, until cancelled. Raises OtherCluster."""
        while True:
            await self._clock.sleep(INTERVAL)
            if self._claim.authorities() != self._checked:
                await self.check()

    async def _attempt(self) -> None:
        found = await self._storage.get(CLUSTER_KEY)
        own = Identity(self._known, self._claim.authorities())
        while True:
            wanted = self._wanted(found, own)
            if found is not None and wanted.encode() == found.value:
                break
            written = await self._storage.transact(
                [Write(CLUSTER_KEY, wanted.encode(), found.mod_revision if found is not None else 0)]
            )
            if isinstance(written, Committed):
                break
            found = written.current[CLUSTER_KEY]
        if wanted.id != self._known:
            log.info("this is the cluster %s", wanted.id)
        self._known, self._checked = wanted.id, own.authorities

    def _wanted(self, found: KeyValue | None, own: Identity) -> Identity:
        if found is None:
            return Identity(own.id or new_uid(self._rng), own.authorities)
        try:
            return compare(Identity.decode(found.value), own, self._claim.where)
        except ValueError as error:
            raise OtherCluster(f"{self._claim.where}: the key {CLUSTER_KEY} is no identity of a cluster: {error}") from None
