import json
from dataclasses import replace

from rich.console import Console

from pinnace.runtime.procfs import ProcessUsage
from pinnace.verification.bench.calibration import Calibration
from pinnace.verification.bench.report import BenchReport, BenchRun, MachineInfo, WorkResult

MACHINE = MachineInfo(2, 24.0, "6.1", "3.11.7", "abc123")


def a_run(rate: float, samples: list[float], lost: int = 0) -> BenchRun:
    return BenchRun(
        Calibration(5000.0, 64),
        {"apiserver-0": ProcessUsage(1.5, 80.0), "etcd-0": ProcessUsage(0.5, 60.0)},
        {"bound": samples},
        items=1000,
        rate=rate,
        violations={"lost": lost},
    )


def a_report(*runs: BenchRun, unit: str = "pods/s", headline: str = "") -> BenchReport:
    return BenchReport("throughput", unit, headline, {"nodes": 1000, "pods": 1000}, runs, MACHINE, "2026-01-31T12:00:00+00:00")


def render(report: BenchReport) -> str:
    console = Console(width=100, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(report.render())
    return capture.get()


def test_rate_is_the_median_with_minimum_and_maximum() -> None:
    result = a_report(a_run(3000, [0.1]), a_run(1000, [0.2]), a_run(2000, [0.3])).to_json()
    assert (result["rate"], result["rate_min"], result["rate_max"]) == (2000.0, 1000.0, 3000.0)
    assert result["per_1000_transactions"] == 400.0
    assert [run["rate"] for run in result["runs"]] == [3000, 1000, 2000]


def test_percentiles_cover_the_samples_of_all_runs() -> None:
    result = a_report(a_run(1, [0.1, 0.2]), a_run(2, [0.3, 9.0])).to_json()
    assert result["stages"]["bound"] == {"p50_s": 0.2, "p99_s": 9.0, "max_s": 9.0}


def test_headline_stage_replaces_the_rate() -> None:
    result = a_report(a_run(0.0, [0.1, 0.2, 0.3]), unit="", headline="bound").to_json()
    assert (result["p50_s"], result["p99_s"], result["max_s"]) == (0.2, 0.3, 0.3)
    assert "rate" not in result


def test_violations_are_summed() -> None:
    assert a_report(a_run(1, [0.1], lost=1), a_run(1, [0.1], lost=2)).violations == {"lost": 3}


def test_report_contains_cpu_per_stage_of_the_median_run() -> None:
    runs = [replace(a_run(rate, [0.1]), stage_cpu={"admit": rate / 1000, "transport": 0.5}) for rate in (1000, 2000, 9000)]
    assert a_report(*runs).to_json()["stage_cpu_us"] == {"admit": 2000.0, "transport": 500.0}
    lines = [" ".join(line.split()) for line in render(a_report(*runs)).splitlines()]
    first = lines.index("stage in the API servers CPU µs per pod share")
    assert lines[first + 1 : first + 4] == ["admit 2000.0 80%", "transport 500.0 20%", "all 2500.0"]


def test_works_have_ratios_to_the_static_answer() -> None:
    works = {
        "get, JSON": WorkResult(800.0, 4000.0, {"gateways": 600.0, "client": 200.0}),
        "list, JSON": WorkResult(20.0, None, {"gateways": 9000.0}),
    }
    report = a_report(replace(a_run(1000, [0.1]), works=works))
    assert report.to_json()["works"] == {
        "get, JSON": {"rate": 800.0, "static_rate": 4000.0, "ratio": 0.2, "cpu_us": {"gateways": 600.0, "client": 200.0}},
        "list, JSON": {"rate": 20.0, "cpu_us": {"gateways": 9000.0}},
    }
    lines = [" ".join(line.split()) for line in render(report).splitlines()]
    first = lines.index("work per second HAProxy, static ratio gateways, µs client, µs")
    assert lines[first + 1 : first + 3] == ["get, JSON 800 4,000 0.200 600 200", "list, JSON 20 9,000 0"]


def test_json_contains_usage_calibration_and_machine() -> None:
    result = json.loads(json.dumps(a_report(a_run(1000, [0.1])).to_json()))
    assert result["cpu_s"] == {"apiserver-0": 1.5, "etcd-0": 0.5}
    assert result["peak_rss_mb"]["apiserver-0"] == 80.0
    assert result["calibration"] == {"transactions_per_s": 5000.0, "callers": 64}
    assert result["machine"]["cores"] == 2


def test_table_shows_rates_latencies_processes_and_the_machine() -> None:
    text = render(a_report(a_run(3000, [0.125]), a_run(1000, [0.125]), a_run(2000, [0.125])))
    lines = text.splitlines()
    assert lines[0] == "throughput: nodes 1,000, pods 1,000"
    assert [line.split() for line in lines if line.startswith("pods/s")] == [["pods/s", "2,000", "1,000", "3,000"]]
    assert [line.split() for line in lines if line.startswith("bound")] == [["bound", "0.125", "0.125", "0.125", "3"]]
    assert [line.split() for line in lines if line.startswith("apiserver-0")] == [["apiserver-0", "1.50", "1.500", "80"]]
    assert "2 cores, 24 GB, Linux 6.1, Python 3.11.7; commit abc123" in text
    assert "\x1b" not in text


def test_table_with_a_headline_stage_shows_no_rate() -> None:
    assert "pods/s" not in render(a_report(a_run(0.0, [0.1]), unit="", headline="bound"))
