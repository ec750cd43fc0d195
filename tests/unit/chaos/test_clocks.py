"""Each process has its own clock, which faults can step and reset."""

from pathlib import Path

from pinnace.verification.chaos.host import WallClocks


def test_process_starts_with_its_own_correct_clock(tmp_path: Path) -> None:
    clocks = WallClocks(Path("/lib/faketime.so"), tmp_path)
    environment = clocks.environment("scheduler-0")
    assert environment["LD_PRELOAD"] == "/lib/faketime.so"
    assert environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    assert Path(environment["FAKETIME_TIMESTAMP_FILE"]).read_text() == "+0\n"


def test_clock_step_affects_one_process_until_heal(tmp_path: Path) -> None:
    clocks = WallClocks(Path("/lib/faketime.so"), tmp_path)
    stepped, other = (Path(clocks.environment(name)["FAKETIME_TIMESTAMP_FILE"]) for name in ("scheduler-0", "scheduler-1"))
    clocks.set_offset("scheduler-0", -3600)
    assert stepped.read_text() == "-3600\n"
    assert other.read_text() == "+0\n"
    clocks.reset_offsets()
    assert stepped.read_text() == "+0\n"
