"""The driver of virtual time: arrivals, ends, retries, preemption, shares of GPUs."""

import gc
import math
import weakref
from pathlib import Path

import numpy as np
import pytest

from pinnace.scheduler.config import parse_configuration
from pinnace.study.fragmentation import Fragmentation, plain_amount, typical_shapes
from pinnace.study.recording import Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.trace import (
    Generated,
    Machine,
    Shape,
    Task,
    Trace,
    TraceError,
    generate,
    inflate_demand,
    read_csv,
    read_openb,
    split_past_tasks,
    write_csv,
)

SHARING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: shared, plugins: {multiPoint: {enabled: [{name: GpuShare}]}}}]
"""
ONE = [Machine("n0", 4000, 8192, 2, "T4")]


def play(machines: list[Machine], tasks: list[Task]) -> list[tuple[str | int, ...]]:
    """Return the decisions."""
    trace = Trace("t", machines, tasks)
    recorder = Recorder(trace, {}, inflated=False)
    simulation = Simulation(parse_configuration(SHARING), trace, recorder, grace=5.0)
    simulation.run()
    recorder.finish(simulation)
    return recorder.decisions


def events(decisions: list[tuple[str | int, ...]]) -> list[tuple[float, str, str]]:
    return [(float(row[0]), str(row[1]), str(row[2])) for row in decisions]


def test_finished_run_is_not_kept_in_memory() -> None:
    """Regression: 60 runs in one process took 1.9 GB."""
    trace = Trace("t", ONE, [Task("a", Shape(1000, gpus=1, milli=500))])
    simulation = Simulation(parse_configuration(SHARING), trace, Recorder(trace, {}, inflated=False))
    simulation.run()
    finished = weakref.ref(simulation)
    del simulation
    gc.collect()
    assert finished() is None


def test_task_waits_until_another_ends() -> None:
    tasks = [Task("a", Shape(3000), 0.0, 100.0), Task("b", Shape(2000), 10.0, 50.0)]
    assert events(play(ONE, tasks)) == [
        (0.0, "a", "placed"),
        (10.0, "b", "unschedulable"),
        (100.0, "a", "ended"),
        (100.0, "b", "placed"),
        (150.0, "b", "ended"),
    ]


def test_freed_task_waits_for_its_backoff() -> None:
    tasks = [Task("a", Shape(3000), 0.0, 10.5), Task("b", Shape(2000), 10.0)]
    assert events(play(ONE, tasks))[-1] == (11.0, "b", "placed")


def test_victim_ends_after_its_grace_period_and_arrives_again() -> None:
    tasks = [Task("low", Shape(3000), 0.0, 100.0), Task("high", Shape(2000), 10.0, 20.0, priority=100)]
    assert events(play(ONE, tasks)) == [
        (0.0, "low", "placed"),
        (10.0, "high", "unschedulable"),
        (15.0, "low", "evicted"),
        (15.0, "high", "placed"),
        (15.0, "low~1", "unschedulable"),
        (35.0, "high", "ended"),
        (35.0, "low~1", "placed"),
        (135.0, "low~1", "ended"),
    ]


def test_shares_need_one_device_with_enough() -> None:
    share = Shape(100, 100, 1, 600)
    decisions = play(ONE, [Task(name, share, index) for index, name in enumerate("abc")])
    assert [(row[2], row[4]) for row in decisions] == [("placed", "0"), ("placed", "1"), ("unschedulable", "")]
    assert "enough free GPU devices" in decisions[-1][7]  # 800 thousandths are free


def test_whole_devices_models_and_release() -> None:
    machines = [Machine("n0", 4000, 8192, 2, "T4"), Machine("n1", 4000, 8192, 2, "V100")]
    tasks = [
        Task("a", Shape(100, 0, 2, 1000, ("V100",)), 0.0, 10.0),
        Task("b", Shape(100, 0, 1, 300, ("V100", "A10")), 1.0, 5.0),
        Task("c", Shape(100, 0, 1, 300, ("A10",)), 2.0, 5.0),
    ]
    placed = {row[1]: (float(row[0]), row[3], row[4]) for row in play(machines, tasks) if row[2] == "placed"}
    assert placed == {"a": (0.0, "n1", "0-1"), "b": (10.0, "n1", "0")}


def test_inflation_reaches_the_demand_and_depends_on_the_seed_only() -> None:
    trace = generate("g", Generated(nodes=8, hours=4, gpus=0.5))
    for percent in (20, 130):
        inflated = inflate_demand(trace, percent, 7)
        demand = sum(map(trace.demand_of, inflated.tasks))
        assert trace.capacity * (percent / 100) - 8000 <= demand <= trace.capacity * percent / 100
        assert inflated == inflate_demand(trace, percent, 7) != inflate_demand(trace, percent, 8)
        assert all(math.isinf(task.duration) for task in inflated.tasks)


def test_split_holds_out_later_tasks() -> None:
    trace = generate("g", Generated(nodes=6, hours=4))
    later = split_past_tasks(trace, 0.5)
    assert len(later.past) == len(trace.tasks) // 2 and later.tasks[0].arrival == 0.0
    assert [task.name for task in (*later.past, *later.tasks)] == [task.name for task in trace.tasks]


def test_csv_round_trip(tmp_path: Path) -> None:
    trace = generate("g", Generated(nodes=6, hours=4, gpus=0.5, high=0.2))
    write_csv(trace, tmp_path / "nodes.csv", tmp_path / "tasks.csv")
    again = read_csv("g", tmp_path / "nodes.csv", tmp_path / "tasks.csv")
    assert list(again.machines) == list(trace.machines)
    start = trace.tasks[0].arrival
    assert [(task.name, task.shape, task.duration) for task in again.tasks] == [
        (task.name, task.shape, task.duration) for task in trace.tasks
    ]
    assert again.tasks[-1].arrival == pytest.approx(trace.tasks[-1].arrival - start)


def test_openb_files(tmp_path: Path) -> None:
    nodes, tasks = tmp_path / "nodes.csv", tmp_path / "tasks.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1000,2000,2,P100\n")
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    tasks.write_text(f"{header}p,500,10,1,460,T4|P100,LS,Running,10,100,40\nq,500,10,0,0,,LS,Running,70,80,\n")
    trace = read_openb("o", nodes, tasks)
    assert trace.tasks == [
        Task("p", Shape(500, 10, 1, 460, ("P100", "T4")), 0.0, 60.0),
        Task("q", Shape(500, 10), 60.0, 10.0),
    ]
    tasks.write_text(f"{header}p,500,10,2,460,,LS,Running,10,100,40\n")
    with pytest.raises(TraceError, match=r"tasks.csv:2: a share of 460 of 2 devices is not supported"):
        read_openb("o", nodes, tasks)


def test_fragmentation_equals_its_plain_form() -> None:
    trace = generate("g", Generated(nodes=10, hours=6, gpus=0.5))
    typical = typical_shapes([*(task.shape for task in trace.tasks), *[Shape(500, 0, 1, 300, ("A10",))] * 400])
    vector, rng = Fragmentation(typical), np.random.default_rng(0)
    free, cpu, models = rng.integers(0, 11, (30, 8)) * 100, rng.integers(0, 9000, 30), rng.integers(0, 2, 30)
    names = ["", "A10"]
    assert vector.amount(cpu, free, models).tolist() == pytest.approx(
        [plain_amount(int(c), row, names[m], typical) for c, row, m in zip(cpu, free.tolist(), models, strict=True)]
    )
    after = vector.amount_after_share(cpu, free, models, 250)
    for row, device in np.ndindex(after.shape):
        left = free[row].tolist()
        left[device] -= 250
        expected = plain_amount(int(cpu[row]), left, names[models[row]], typical) if left[device] >= 0 else math.inf
        assert after[row, device] == pytest.approx(expected)
