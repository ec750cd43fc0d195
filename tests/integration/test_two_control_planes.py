"""Two control planes, with authorities of their own, on one real etcd."""

from datetime import UTC, datetime
from pathlib import Path

from pinnace.pki.authority import Authority, Subject
from pinnace.runtime.logs import ProcessFailed
from tests.conftest import EtcdServer, wipe
from tests.integration.conftest import Start

DEADLINE = 20.0


def certificates(folder: Path) -> list[str]:
    """The flags of an API server that has an authority of its own."""
    folder.mkdir()
    now = datetime.now(UTC)
    authority = Authority.create("kubernetes", now)
    pair = authority.issue(Subject("kube-apiserver"), now, hosts=["127.0.0.1"])
    for name, content in (("ca.crt", authority.pair.certificate), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / name).write_bytes(content)
    files = [f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key"]
    return [*files, f"--client-ca-file={folder}/ca.crt", "--listen=127.0.0.1:0"]


async def test_second_control_plane_needs_a_prefix_of_its_own(etcd: EtcdServer, start: Start, tmp_path: Path) -> None:
    await wipe(etcd.endpoint)
    first, second = certificates(tmp_path / "first"), certificates(tmp_path / "second")
    await start("apiserver", "first", "--etcd", etcd.endpoint, *first, insecure=False).ready()
    refused = start("apiserver", "refused", "--etcd", etcd.endpoint, *second, insecure=False)
    assert refused.process.wait(DEADLINE) == 1
    said = refused.log()
    assert refused.logged(ProcessFailed) == [ProcessFailed("ClusterMismatch", expected=True)]
    assert "--etcd-prefix" in said and "Traceback" not in said, "a hint, and no bug"
    await start("apiserver", "beside", "--etcd", etcd.endpoint, "--etcd-prefix", "/b", *second, insecure=False).ready()
    await start("apiserver", "again", "--etcd", etcd.endpoint, *first, insecure=False).ready()
