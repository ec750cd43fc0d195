"""The command line of a second process with the same name."""

from itertools import count
from pathlib import Path

from pinnace.chaos.faults.processes import twin_of
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import KUBELET, ClusterSpec, plan


def test_a_twin_of_a_kubelet_has_all_from_it_but_its_addresses(tmp_path: Path) -> None:
    """It died of a port that was taken once, and the fault was none."""
    ports, fresh = count(20_000), count(30_000)
    plans = plan(ClusterSpec(nodes=2, data_dir=tmp_path), EtcdBinary(Path("etcd"), (3, 5, 21), fallback=False), ports.__next__)
    (kubelet, *_) = (each for each in plans if each.component == KUBELET)
    argv = (*kubelet.argv, "--run-log", str(tmp_path / "kubelet.log"))
    twin = twin_of(argv, fresh.__next__)
    differs = {argv[at - 1]: (mine, its) for at, (mine, its) in enumerate(zip(argv, twin, strict=True)) if mine != its}
    assert differs.keys() == {"--http", "--listen", "--run-log"}
    own = {kubelet.http, argv[argv.index("--listen") + 1]}
    assert not own & set(twin)
