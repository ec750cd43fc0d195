"""Which processor a process keeps to: dealt out on paper, and asked of real ones."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pinnace.cluster import affinity
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.folder import Folder
from pinnace.cluster.ports import Ports
from pinnace.cluster.spec import ClusterSpec, Plan
from pinnace.cluster.state import planned

THREADED = "import threading, time; threading.Thread(target=time.sleep, args=[60]).start(); print('ready', flush=True)"


def plans(*names: str, argv: tuple[str, ...] = ()) -> list[Plan]:
    ports = Ports()
    addresses = [f"127.0.0.1:{ports.next()}" for _ in names]
    return [Plan(name.split("-")[0], name, a, a, (*argv, name)) for name, a in zip(names, addresses, strict=True)]


def test_each_api_server_gets_another_one() -> None:
    cluster = plans("etcd-0", "apiserver-0", "apiserver-1", "scheduler-0")
    assert affinity.kept(cluster, {5, 2}) == {"apiserver-0": 2, "apiserver-1": 5}
    assert affinity.kept(cluster, {3}) == {"apiserver-0": 3, "apiserver-1": 3}


def test_more_api_servers_than_processors_share_them_evenly() -> None:
    servers = plans(*(f"apiserver-{i}" for i in range(5)))
    assert list(affinity.kept(servers, {0, 1}).values()) == [0, 1, 0, 1, 0]


def test_nobody_is_kept_where_there_is_a_processor_for_each() -> None:
    assert affinity.kept(plans("etcd-0", "apiserver-0", "apiserver-1"), {0, 1, 2}) == {}


async def test_a_process_and_its_threads_stay_where_they_are_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid, asked=os.sched_getaffinity: asked(pid) if pid else set(ours[-1:]))
    path = tmp_path / "cluster"
    names = ["etcd-0", "apiserver-0"]
    started = plans(*names, argv=(sys.executable, "-c", THREADED, str(path)))
    Folder(path).claim(planned(ClusterSpec(data_dir=path), started, Folder(path).create(), 0.0))
    cluster = Cluster.load(path)
    try:
        cluster.revive(names)
        async with asyncio.timeout(20):
            while not all("ready" in cluster.folder.log_tail(name) for name in names):  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.01)
        assert threads(cluster, "apiserver-0") == [{ours[-1]}] * 2
        assert threads(cluster, "etcd-0") == [set(ours)] * 2
    finally:
        await cluster.down()


def threads(cluster: Cluster, name: str) -> list[set[int]]:
    """The processors of each."""
    return [os.sched_getaffinity(int(thread.name)) for thread in Path(f"/proc/{cluster.pid(name)}/task").iterdir()]


def test_one_that_has_ended_is_nobodys_trouble() -> None:
    gone = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitpid(gone, 0)
    affinity.keep(gone, "apiserver-0", plans("etcd-0", *(f"apiserver-{i}" for i in range(len(os.sched_getaffinity(0))))))
