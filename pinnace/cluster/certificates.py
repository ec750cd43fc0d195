"""Who the parts of a cluster are to each other: their certificates, and how each finds the API servers.

    <folder>/                        see pinnace.pki.folder
    <folder>/<component>.conf        of each client, in the kubeconfig format, as kubeadm calls it

The users and groups are Kubernetes': https://kubernetes.io/docs/setup/best-practices/certificates/ and
https://kubernetes.io/docs/reference/access-authn-authz/node/ (a fleet is called like one node).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pinnace.client.config import ClientConfig, write_context
from pinnace.pki import Subject
from pinnace.pki.folder import ADMIN, APISERVER, Folder, Wanted
from pinnace.runtime.tls import TlsFiles

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SCHEDULER = "scheduler"
_SERVER = Subject("kube-apiserver")
_CLIENTS = {ADMIN: Subject("kubernetes-admin", ("system:masters",)), SCHEDULER: Subject("system:kube-scheduler")}
_CONTEXT = "pinnace"


def provide(folder: Path, endpoints: Sequence[str], fleets: Sequence[str], hosts: Sequence[str] = LOOPBACK) -> list[str]:
    """Makes all that is missing or ends soon; the names of the certificates that were made. `endpoints`: the API servers as
    clients reach them, `hosts`: what these are called. Raises OSError, and ValueError when what is there is none of ours."""
    clients = _CLIENTS | {fleet: Subject(f"system:node:{fleet}", ("system:nodes",)) for fleet in fleets}
    wanted = [Wanted(APISERVER, _SERVER, tuple(hosts)), *(Wanted(name, subject) for name, subject in clients.items())]
    made = Folder(folder).provide(wanted, datetime.now(UTC))
    for name in clients:
        files = TlsFiles(Path("ca.crt"), Path(f"{name}.crt"), Path(f"{name}.key"))
        write_context(_CONTEXT, ClientConfig(tuple(endpoints), tls=files), file=configuration(folder, name))
    return made


def files(folder: Path, name: str) -> TlsFiles:
    """Of a component that `provide` has made a certificate for."""
    return Folder(folder).files(name)


def configuration(folder: Path, name: str) -> Path:
    """The client configuration of a component."""
    return folder / f"{name}.conf"
