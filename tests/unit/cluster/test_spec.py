import json
from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.machines import MachineOptions
from pinnace.cluster.errors import SpecError
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import (
    APISERVER,
    ClusterSpec,
    ProcessHooks,
    data_dir_flag,
    default_data_dir,
    plan_processes,
    split_evenly,
)

BINARY = EtcdBinary(Path("/bin/etcd"), (3, 5, 9), fallback=False)


def ports() -> Callable[[], int]:
    numbers = count(20_000)
    return lambda: next(numbers)


def argument(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_plan_lists_processes_in_starting_order() -> None:
    plans = plan_processes(ClusterSpec(nodes=10, kubelets=3, controllers=2, data_dir=Path("/d")), BINARY, ports())
    assert [p.name for p in plans] == [
        "etcd-0", "apiserver-0", "apiserver-1", "scheduler-0", "scheduler-1", "scheduler-2", "controllers-0", "controllers-1",
        "kubelet-0", "kubelet-1", "kubelet-2",
    ]  # fmt: skip


def test_addresses_of_processes_are_unique() -> None:
    plans = plan_processes(ClusterSpec(etcd_members=3, data_dir=Path("/d")), BINARY, ports())
    addresses = [address for p in plans for address in {p.address, p.http}]
    assert len(set(addresses)) == len(addresses)


def test_kubelets_share_the_nodes_without_gap_or_overlap() -> None:
    fleets = [
        p
        for p in plan_processes(ClusterSpec(nodes=10, kubelets=3, data_dir=Path("/d")), BINARY, ports())
        if p.component == "kubelet"
    ]
    dealt = [(int(argument(p.argv, "--first-index")), int(argument(p.argv, "--nodes"))) for p in fleets]
    assert [index for first, number in dealt for index in range(first, first + number)] == list(range(10))


def test_components_have_all_addresses_of_their_servers() -> None:
    plans = plan_processes(ClusterSpec(etcd_members=3, data_dir=Path("/d")), BINARY, ports())
    by_name = {p.name: p for p in plans}
    stores = [by_name[f"etcd-{i}"].address for i in range(3)]
    servers = [by_name[f"apiserver-{i}"].address for i in range(2)]
    assert argument(by_name["apiserver-1"].argv, "--etcd").split(",") == stores
    assert argument(by_name["scheduler-2"].argv, "--server").split(",") == servers
    assert argument(by_name["kubelet-0"].argv, "--server").split(",") == servers


def test_etcd_authority_is_trusted_by_api_servers_only() -> None:
    plans = plan_processes(ClusterSpec(data_dir=Path("/d")), BINARY, ports())
    by_name = {p.name: p.argv for p in plans}
    authority = "/d/pki/etcd/ca.crt"
    assert {f"--trusted-ca-file={authority}", f"--peer-trusted-ca-file={authority}"} <= set(by_name["etcd-0"])
    assert argument(by_name["apiserver-1"], "--etcd-cafile") == authority
    assert argument(by_name["apiserver-1"], "--client-ca-file") == "/d/pki/ca.crt"


@pytest.mark.parametrize(
    ("processors", "dealt"),
    [((), []), ({5}, []), ({5, 2}, ["2", "5", "2"]), (range(8), ["0", "1", "2"]), (range(9), [])],
)
def test_api_servers_are_pinned_if_processors_are_fewer_than_processes(processors: Collection[int], dealt: list[str]) -> None:
    plans = plan_processes(
        ClusterSpec(apiservers=3, controllers=1, data_dir=Path("/d")), BINARY, ports(), processors=processors
    )
    assert len(plans) == 9
    assert [argument(p.argv, "--stay-on-cpu") for p in plans if "--stay-on-cpu" in p.argv] == dealt
    assert all(p.component == APISERVER for p in plans if "--stay-on-cpu" in p.argv)


def test_hooks_change_addresses_arguments_and_environment() -> None:
    hooks = ProcessHooks(
        wiring=lambda source, target, address: f"{source}>{target}",
        arguments=lambda name: ["--run-log", f"/{name}"] if name == "kubelet-0" else [],
        environment=lambda name: {"NAME": name},
    )
    plans = plan_processes(ClusterSpec(etcd_members=3, data_dir=Path("/d")), BINARY, ports(), hooks)
    by_name = {p.name: p for p in plans}
    etcd = "apiserver-1>etcd-0,apiserver-1>etcd-1,apiserver-1>etcd-2"
    assert argument(by_name["apiserver-1"].argv, "--etcd") == etcd
    assert argument(by_name["scheduler-2"].argv, "--server") == "scheduler-2>apiserver-0,scheduler-2>apiserver-1"
    assert argument(by_name["kubelet-0"].argv, "--server") == "kubelet-0>apiserver-0,kubelet-0>apiserver-1"
    assert argument(by_name["kubelet-0"].argv, "--run-log") == "/kubelet-0"
    assert "--run-log" not in by_name["scheduler-0"].argv
    assert by_name["etcd-2"].environment == (("NAME", "etcd-2"),)


def test_process_kubelets_serve_api_servers_and_use_the_cluster_folder() -> None:
    plans = plan_processes(ClusterSpec(kubelets=2, runtime="process", data_dir=Path("/d")), BINARY, ports())
    by_name = {p.name: p.argv for p in plans}
    assert argument(by_name["kubelet-1"], "--runtime") == "process"
    assert argument(by_name["kubelet-1"], "--root-dir") == "/d/pods/kubelet-1"
    assert argument(by_name["kubelet-1"], "--listen") not in {address for p in plans for address in (p.address, p.http)}
    assert argument(by_name["apiserver-0"], "--kubelet-client-certificate") == "/d/pki/apiserver-kubelet-client.crt"


def test_pods_ask_the_proxy_for_names_at_the_port_of_dns_or_not_at_all() -> None:
    spec = ClusterSpec(runtime="process", proxy=True)
    by_name = {p.name: p.argv for p in plan_processes(spec, BINARY, ports(), pod_dns="127.255.8.10")}
    assert argument(by_name["proxy-0"], "--dns") == "127.255.8.10:53"
    assert argument(by_name["kubelet-0"], "--cluster-dns") == "127.255.8.10"
    by_name = {p.name: p.argv for p in plan_processes(spec, BINARY, ports())}
    assert argument(by_name["proxy-0"], "--dns").startswith("127.0.0.1:")
    assert "--cluster-dns" not in by_name["kubelet-0"]


@pytest.mark.parametrize(
    "counts",
    [
        {"etcd_members": 2}, {"etcd_members": 0}, {"apiservers": 0}, {"schedulers": -1}, {"nodes": -1},
        {"nodes": 5, "kubelets": 0}, {"nodes": 2, "kubelets": 3}, {"nodes": 10**20},
        {"schedulers": 10**20}, {"runtime": "docker"},
    ],
)  # fmt: skip
def test_invalid_spec_is_rejected_with_a_hint(counts: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        ClusterSpec(**counts)
    assert refused.value.hint


def test_cluster_without_schedulers_and_nodes_is_valid() -> None:
    assert ClusterSpec(nodes=0, kubelets=0, schedulers=0).apiservers == 2


@pytest.mark.parametrize(("total", "parts"), [(10, 3), (1, 1), (1000, 7), (5, 5), (0, 0), (0, 1)])
def test_shares_are_even_and_complete(total: int, parts: int) -> None:
    dealt = split_evenly(total, parts)
    counts = [number for _, number in dealt]
    assert sum(counts) == total and len(dealt) == parts
    assert not counts or max(counts) - min(counts) <= 1


def test_data_dir_flag_is_quoted_for_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert data_dir_flag(default_data_dir()) == ""
    assert data_dir_flag(Path("/a b/c")) == " --data-dir '/a b/c'"


def test_default_folder_follows_the_base_directory_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_data_dir() == Path("/state/pinnace/default")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_data_dir() == Path("/home/ada/.local/state/pinnace/default")


def test_hook_moves_the_data_of_an_etcd_member() -> None:
    hooks = ProcessHooks(etcd_data=lambda member: Path("/disk/data") if member == "etcd-2" else None)
    plans = plan_processes(ClusterSpec(etcd_members=3, data_dir=Path("/d")), BINARY, ports(), hooks)
    folders = [option for item in plans for option in item.argv if option.startswith("--data-dir=")]
    assert folders == ["--data-dir=/d/etcd/etcd-0", "--data-dir=/d/etcd/etcd-1", "--data-dir=/disk/data"]


def test_state_keeps_the_node_shapes() -> None:
    spec = ClusterSpec(nodes=4, data_dir=Path("/d"), machine=MachineOptions(cpu="8", zones="2", machines="/shapes.yaml"))
    assert ClusterSpec.from_fields(json.loads(json.dumps(spec.to_fields())), Path("/d")) == spec


def test_state_without_machine_options_is_read() -> None:
    chosen = ClusterSpec(data_dir=Path("/d")).to_fields()
    del chosen["machine"]
    assert ClusterSpec.from_fields(chosen, Path("/d")).machine == MachineOptions()


def test_slow_motion_gives_all_api_servers_longer_leases() -> None:
    def servers(spec: ClusterSpec) -> list[tuple[str, ...]]:
        return [p.argv for p in plan_processes(spec, BINARY, ports()) if p.component == APISERVER]

    assert [argument(argv, "--election-lease-duration") for argv in servers(ClusterSpec(slow_motion=True))] == ["10", "10"]
    assert not any("--election-lease-duration" in argv for argv in servers(ClusterSpec()))
    assert ClusterSpec.from_fields(ClusterSpec(slow_motion=True).to_fields(), Path("/d")).slow_motion
