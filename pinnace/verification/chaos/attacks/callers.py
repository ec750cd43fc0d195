"""The users of attacks, with certificates and roles, and the pod at which some attacks aim."""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.rbac_v1_pb2 import ClusterRoleBinding, RoleRef, Subject
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import pki_folder
from pinnace.pki import Subject as PodOwner
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.verification.chaos.attacks.wire import ANONYMOUS
from pinnace.verification.chaos.workers import NOBODY, build_pod

NAMESPACE, TARGET = "attacked", "target"
"""The namespace and the name of a pod that no scheduler processes."""
STRANGER, READER, EDITOR = "attacker-stranger", "attacker-reader", "attacker-editor"
ROLES = {READER: "view", EDITOR: "edit"}
ATTACKERS = (STRANGER, *ROLES)


def create_user_certificates(cluster: Cluster, *users: str) -> Path:
    """Create missing certificates of these users without a group. Return the folder."""
    folder = pki_folder(cluster.spec.data_dir)
    PkiFolder(folder).provide([CertificateSpec(user, PodOwner(user)) for user in users], datetime.now(UTC))
    return folder


async def bind_role(client: Client, user: str, role: str) -> None:
    """Bind a user to a ClusterRole, unless this has been done. Raises ApiError."""
    binding = ClusterRoleBinding(
        metadata=ObjectMeta(name=f"{user}-{role}"),
        roleRef=RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=role),
        subjects=[Subject(apiGroup="rbac.authorization.k8s.io", kind="User", name=user)],
    )
    with suppress(AlreadyExists):
        await client.of(CLUSTER_ROLE_BINDINGS).create(binding)


async def provide_namespace(client: Client, name: str) -> None:
    with suppress(AlreadyExists):
        await client.namespaces.create(Namespace(metadata=ObjectMeta(name=name)))


async def create_attackers(cluster: Cluster, client: Client) -> Path:
    """Create the certificates and roles of the attackers, and their target, unless they exist. Return the folder with the
    certificates. Raises ApiError."""
    folder = create_user_certificates(cluster, *ATTACKERS)
    for user, role in ROLES.items():
        await bind_role(client, user, role)
    await provide_namespace(client, NAMESPACE)
    with suppress(AlreadyExists):
        await client.pods.create(build_pod(NAMESPACE, TARGET, scheduler=NOBODY))
    return folder


def create_tls_contexts(folder: Path) -> Mapping[str, ssl.SSLContext]:
    """Return the TLS contexts of the attackers and of callers without a certificate."""
    ssl_contexts = {user: ssl.create_default_context(cafile=str(folder / "ca.crt")) for user in (ANONYMOUS, *ATTACKERS)}
    for user in ATTACKERS:
        tls = certificates.component_files(folder, user)
        ssl_contexts[user].load_cert_chain(str(tls.cert), str(tls.key))
    return ssl_contexts
