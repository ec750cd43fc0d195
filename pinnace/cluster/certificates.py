"""The certificates and client configurations of a local cluster.

There are two certificate authorities. etcd trusts only its own, so that no client of the API servers can connect to etcd.

    <folder>/                        see pinnace.pki.folder
    <folder>/<component>.conf        the kubeconfig of each client; the administrator's names the gateway, for kubectl
    <folder>/users/<user>.conf       the kubeconfig of a user, beside the certificate

The users and groups are those of Kubernetes: https://kubernetes.io/docs/setup/best-practices/certificates/ and
https://kubernetes.io/docs/reference/access-authn-authz/node/. A fleet has the user name of one node.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pinnace.client.config import ClientConfig, load_config
from pinnace.client.contexts import write_context
from pinnace.cluster.etcd import EtcdTls
from pinnace.pki import CertificatePair, Subject
from pinnace.pki.authority import CLIENT, SERVER_NAME
from pinnace.pki.folder import (
    ADMIN,
    APISERVER,
    CLUSTER_CA,
    ETCD_CA,
    ETCD_CLIENT,
    ETCD_PEER,
    ETCD_SERVER,
    KUBELET_CLIENT,
    CertificateSpec,
    PkiFolder,
    write_atomically,
)
from pinnace.runtime.tls import TlsFiles

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOCAL_SERVICE_NETWORKS = tuple(f"127.255.{high}.0/21" for high in range(0, 256, 8))
"""The networks of cluster IPs. Each cluster whose pods are processes has one of them. The clusters of a machine share the
addresses of 127.0.0.0/8, and the proxy of one cluster must not answer at the service `kubernetes` of another. Pods have other
addresses (pinnace.kubelet.addresses)."""
IN_CLUSTER = (
    "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
    "10.96.0.1", *(f"127.255.{high}.1" for high in range(0, 256, 8)),
)  # fmt: skip
"""The names of the gateways in pods, and the first addresses of the networks of services."""
SCHEDULER, CONTROLLERS, GATEWAY, PROXY = "scheduler", "controllers", "gateway", "proxy"
_SERVER = Subject("kube-apiserver")
_CLIENTS = {
    ADMIN: Subject("kubernetes-admin", ("system:masters",)),
    SCHEDULER: Subject("system:kube-scheduler"),
    CONTROLLERS: Subject("system:kube-controller-manager"),
    GATEWAY: Subject("system:gateway"),
    PROXY: Subject("system:kube-proxy"),
}
_ETCD_SERVER, _ETCD_PEER, _ETCD_CLIENT = map(Subject, ("kube-etcd", "kube-etcd-peer", "kube-apiserver-etcd-client"))
_CONTEXT = "pinnace"


def create_certificates(
    folder: Path,
    endpoints: Sequence[str],
    fleets: Mapping[str, Sequence[str]],
    hosts: Sequence[str] = LOOPBACK,
    etcd_hosts: Sequence[str] = LOOPBACK,
    *,
    local: bool = False,
    gateway: str = "",
) -> list[str]:
    """Create missing and expiring certificates, and return their names. `endpoints`: addresses of the API servers for
    clients, without which no configurations are written; `hosts`: names of the API servers; `etcd_hosts`: names of etcd's
    members; `fleets`: node names of each fleet (pinnace.api.names); `local`: the directory belongs to a local cluster, which
    the configurations name; `gateway`: "host:port" of a gateway, for the administrator's kubectl. Raises OSError, and
    ValueError for files that pinnace has not created.
    """
    clients = _client_subjects(fleets)
    made = _create_certificates(folder, clients, fleets, hosts, etcd_hosts)
    for name in clients if endpoints else ():
        _write_client_config(folder, name, ClientConfig(tuple(endpoints), gateway=gateway if name == ADMIN else ""), local)
    return made


def write_kubeconfig(path: Path, pki: Path, config: ClientConfig) -> None:
    """Write a kubeconfig of the administrator with absolute paths to the certificates in `pki`. Raises OSError."""
    write_context(_CONTEXT, replace(config, tls=component_files(pki, ADMIN)), file=path)


def export_kubeconfig(folder: Path, path: Path, endpoints: Sequence[str] = (), gateway: str = "") -> None:
    """Add the administrator's context to the kubeconfig `path`, with the certificates as data, so that the file can be used on
    other machines. By default, the addresses are those of the administrator. Raises OSError and ConfigError.
    """
    admin = load_config(file=client_config_path(folder, ADMIN))
    config = replace(admin, data_dir=None, endpoints=tuple(endpoints) or admin.endpoints, gateway=gateway or admin.gateway)
    write_context(_CONTEXT, config, file=path, embed=True)


def renew_certificates(folder: Path, fleets: Mapping[str, Sequence[str]]) -> list[str]:
    """Renew missing, expiring and expired certificates of a local cluster, and return their names. Authorities are not
    renewed, because running members of etcd would not trust the new one. Raises as `create_certificates`.
    """
    if not has_authorities(folder):
        return []
    return _create_certificates(folder, _client_subjects(fleets), fleets, LOOPBACK, LOOPBACK)


def has_authorities(folder: Path) -> bool:
    """Whether both authorities are there."""
    authorities = (folder / f"{ca.name}.{ending}" for ca in (CLUSTER_CA, ETCD_CA) for ending in ("crt", "key"))
    return all(path.is_file() for path in authorities)


def _client_subjects(fleets: Mapping[str, Sequence[str]]) -> dict[str, Subject]:
    return _CLIENTS | {
        fleet: Subject(f"system:node:{fleet}", ("system:nodes",), tuple(nodes)) for fleet, nodes in fleets.items()
    }


def _create_certificates(
    folder: Path, clients: Mapping[str, Subject], fleets: Container[str], hosts: Sequence[str], etcd_hosts: Sequence[str]
) -> list[str]:
    now = datetime.now(UTC)
    wanted = [
        CertificateSpec(APISERVER, _SERVER, (*hosts, *IN_CLUSTER)),
        *(CertificateSpec(name, subject, (SERVER_NAME,) if name in fleets else ()) for name, subject in clients.items()),
        CertificateSpec(KUBELET_CLIENT, CLIENT),
    ]
    of_etcd = [
        CertificateSpec(ETCD_SERVER, _ETCD_SERVER, tuple(etcd_hosts)),
        CertificateSpec(ETCD_PEER, _ETCD_PEER, tuple(etcd_hosts)),
        CertificateSpec(ETCD_CLIENT, _ETCD_CLIENT),
    ]
    of_cluster = PkiFolder(folder)
    return of_cluster.provide(wanted, now) + of_cluster.provide_signing_key() + PkiFolder(folder, ETCD_CA).provide(of_etcd, now)


def update_addresses(folder: Path, moved: Mapping[str, str]) -> None:
    """Write the new addresses of API servers and gateways to the client configurations. Raises OSError and ConfigError."""
    for path in folder.rglob("*.conf"):
        config = load_config(file=path)
        if not set(moved).isdisjoint((*config.endpoints, config.gateway)):
            endpoints = tuple(moved.get(endpoint, endpoint) for endpoint in config.endpoints)
            gateway = moved.get(config.gateway, config.gateway)
            name = str(path.relative_to(folder).with_suffix(""))
            _write_client_config(
                folder, name, replace(config, endpoints=endpoints, gateway=gateway), config.data_dir is not None
            )


def create_user_certificate(folder: Path, user: str, groups: Sequence[str], endpoints: Sequence[str] = ()) -> list[str]:
    """Create the certificate of a person with the existing authority. The configuration has the administrator's gateway and,
    by default, API servers. `user` must be valid as a file name. Raises OSError, ValueError and ConfigError.
    """
    admin = client_config_path(folder, ADMIN)
    cluster = load_config(file=admin) if not endpoints or admin.is_file() else ClientConfig(tuple(endpoints))
    cluster = replace(cluster, endpoints=tuple(endpoints) or cluster.endpoints)
    made = PkiFolder(folder).provide([CertificateSpec(user_path(user), Subject(user, tuple(groups)))], datetime.now(UTC))
    _write_client_config(folder, user_path(user), cluster, cluster.data_dir is not None)
    return made


def write_joined(folder: Path, fleet: str, ca: bytes, pair: CertificatePair, endpoints: Sequence[str]) -> None:
    """Write what the kubelet of a machine needs that has joined: the certificate of the authority, its own, its key and its
    kubeconfig. Raises OSError and ConfigError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for ending, data, mode in (("key", pair.key, 0o600), ("crt", pair.certificate, 0o644)):
        write_atomically(folder / f"{fleet}.{ending}", data, mode=mode)
    write_atomically(folder / f"{CLUSTER_CA.name}.crt", ca, mode=0o644)
    _write_client_config(folder, fleet, ClientConfig(tuple(endpoints)), local=False)


def user_path(user: str) -> str:
    """The paths of a person's certificate and configuration."""
    return f"users/{user}"


def find_pki_folder(folder: Path) -> Path | None:
    """The certificate directory at this path, or in the local cluster at this path. None: there is none."""
    return next((path for path in (folder, folder / "pki") if (path / f"{CLUSTER_CA.name}.key").is_file()), None)


def _write_client_config(folder: Path, name: str, cluster: ClientConfig, local: bool) -> None:
    """Write the configuration of a client, with relative paths, so that the directory can be moved."""
    upwards, own = Path(*[".."] * name.count("/")), name.rpartition("/")[2]
    shown = TlsFiles(upwards / "ca.crt", Path(f"{own}.crt"), Path(f"{own}.key"))
    config = replace(cluster, data_dir=upwards / ".." if local else None, tls=shown)
    write_context(_CONTEXT, config, file=client_config_path(folder, name))


def component_files(folder: Path, name: str) -> TlsFiles:
    """The files of a component for which `create_certificates` has created a certificate."""
    return PkiFolder(folder).files(name)


def etcd_member_files(folder: Path) -> EtcdTls:
    """The files of each member of etcd."""
    of_etcd = PkiFolder(folder, ETCD_CA)
    return EtcdTls(of_etcd.files(ETCD_SERVER), of_etcd.files(ETCD_PEER))


def etcd_client_files(folder: Path) -> TlsFiles:
    """The files of clients of etcd: API servers, and programs that replace them."""
    return PkiFolder(folder, ETCD_CA).files(ETCD_CLIENT)


def etcd_arguments(folder: Path) -> tuple[str, ...]:
    """The flags for the client certificate to etcd, as in kube-apiserver."""
    shown = etcd_client_files(folder)
    return ("--etcd-cafile", f"{shown.ca}", "--etcd-certfile", f"{shown.cert}", "--etcd-keyfile", f"{shown.key}")


def kubelet_arguments(folder: Path) -> tuple[str, ...]:
    """The flags for the client certificate to kubelets, as in kube-apiserver."""
    shown = component_files(folder, KUBELET_CLIENT)
    return (
        "--kubelet-certificate-authority", f"{shown.ca}",
        "--kubelet-client-certificate", f"{shown.cert}", "--kubelet-client-key", f"{shown.key}",
    )  # fmt: skip


def account_key_arguments(folder: Path) -> tuple[str, ...]:
    """The flags for the keys of service account tokens, as in kube-apiserver."""
    private, public = PkiFolder(folder).signing_key_files()
    return ("--service-account-signing-key-file", f"{private}", "--service-account-key-file", f"{public}")


def client_config_path(folder: Path, name: str) -> Path:
    """The path of a component's client configuration."""
    return folder / f"{name}.conf"
