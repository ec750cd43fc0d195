"""Each process has a clock of its own, that can be stepped and healed."""

from pathlib import Path

from pinnace.chaos.host import Clocks


def test_a_process_is_given_its_own_clock_which_is_right_at_first(tmp_path: Path) -> None:
    clocks = Clocks(Path("/lib/faketime.so"), tmp_path)
    environment = clocks.environment("scheduler-0")
    assert environment["LD_PRELOAD"] == "/lib/faketime.so"
    assert environment["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    assert Path(environment["FAKETIME_TIMESTAMP_FILE"]).read_text() == "+0\n"


def test_a_step_is_of_one_process_alone_and_can_be_taken_back(tmp_path: Path) -> None:
    clocks = Clocks(Path("/lib/faketime.so"), tmp_path)
    stepped, other = (Path(clocks.environment(name)["FAKETIME_TIMESTAMP_FILE"]) for name in ("scheduler-0", "scheduler-1"))
    clocks.step("scheduler-0", -3600)
    assert stepped.read_text() == "-3600\n"
    assert other.read_text() == "+0\n"
    clocks.heal()
    assert stepped.read_text() == "+0\n"
