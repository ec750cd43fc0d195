"""Who is let into the etcd of a local cluster: the API servers, and nobody else on the machine."""

import ssl
from collections.abc import AsyncIterator
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import grpc
import pytest
from aetcd.rpc import KVStub, RangeRequest

from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import APISERVER, ETCD, ClusterSpec, pki_folder
from pinnace.pki.folder import ADMIN
from pinnace.runtime.tls import TlsFiles

FLEET = "kubelet-0"
PATIENCE = 2.0
EVERYTHING = RangeRequest(key=b"\0", range_end=b"\0", count_only=True)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """It is up: so etcd's members and the API servers have let each other in."""
    data_dir = tmp_path_factory.mktemp("home") / "cluster"
    cluster = Cluster(ClusterSpec(nodes=1, schedulers=0, apiservers=1, etcd_members=3, data_dir=data_dir))
    await cluster.up()
    yield cluster
    await cluster.down()


def stranger(cluster: Cluster, name: str) -> TlsFiles:
    """Who knows etcd's authority, but is of the cluster's."""
    shown = certificates.component_files(pki_folder(cluster.spec.data_dir), name)
    return TlsFiles(cluster.etcd_tls.ca, shown.cert, shown.key)


async def keys(member: str, shown: grpc.ChannelCredentials | None) -> int:
    """How many a member has, when it is asked by who shows this. None: in the clear."""
    async with grpc.aio.secure_channel(member, shown) if shown else grpc.aio.insecure_channel(member) as channel:
        return int((await KVStub(channel).Range(EVERYTHING, timeout=PATIENCE)).count)


async def refused(cluster: Cluster, shown: grpc.ChannelCredentials | None) -> None:
    """By every member, although it is there."""
    for record in cluster.state.processes_of(ETCD):
        assert await keys(record.plan.address, cluster.etcd_tls.read().for_channel()) > 0
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await keys(record.plan.address, shown)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


async def test_etcd_refuses_plaintext_connections(cluster: Cluster) -> None:
    await refused(cluster, None)


async def test_etcd_refuses_clients_without_a_certificate(cluster: Cluster) -> None:
    await refused(cluster, grpc.ssl_channel_credentials(cluster.etcd_tls.ca.read_bytes()))


@pytest.mark.parametrize("name", [FLEET, ADMIN, APISERVER])
async def test_etcd_refuses_certificates_of_the_cluster_authority(cluster: Cluster, name: str) -> None:
    await refused(cluster, stranger(cluster, name).read().for_channel())


async def test_etcd_refuses_peers_without_a_peer_certificate(cluster: Cluster) -> None:
    def ask(url: str, shown: TlsFiles) -> bytes:
        context = ssl.create_default_context(cafile=shown.ca)
        context.load_cert_chain(shown.cert, shown.key)
        with build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open(f"{url}/members", timeout=PATIENCE) as answer:
            return bytes(answer.read())

    peer = certificates.etcd_member_files(pki_folder(cluster.spec.data_dir)).peer
    for record in cluster.state.processes_of(ETCD):
        url = next(flag.partition("=")[2] for flag in record.plan.argv if flag.startswith("--listen-peer-urls="))
        assert record.name.encode() in ask(url, peer)
        with pytest.raises(OSError):
            ask(url, stranger(cluster, ADMIN))


async def test_etcd_opens_no_api_server(cluster: Cluster) -> None:
    """What etcd's authority has signed makes nobody known there."""
    shown = TlsFiles(cluster.tls.ca, cluster.etcd_tls.cert, cluster.etcd_tls.key).read().for_channel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with grpc.aio.secure_channel(cluster.endpoints[0], shown) as channel:
            await channel.unary_unary("/pinnace.v1.Nodes/List")(b"", timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
