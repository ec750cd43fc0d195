"""Histories in files are read back unchanged."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.history.records import (
    CallRecord,
    Compaction,
    ContainerRun,
    FaultRecord,
    HistoryError,
    ProcessState,
    Record,
    RunInfo,
    RunPhase,
    StoredChange,
    WatchMessage,
    decode_record,
    encode_record,
    read_history,
)
from tests.unit.check.world import World

records = st.one_of(
    *(
        st.builds(kind)
        for kind in (
            RunInfo,
            StoredChange,
            Compaction,
            CallRecord,
            WatchMessage,
            ContainerRun,
            FaultRecord,
            RunPhase,
            ProcessState,
        )
    )
)


@given(records.filter(lambda record: "nan" not in repr(record)))
def test_record_round_trip(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_history_round_trip(tmp_path: Path) -> None:
    path, history = tmp_path / "h.jsonl", World(0).live()
    with path.open("w") as file:
        file.writelines(map(encode_record, history))
    assert list(read_history(path)) == history


def test_unfinished_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(encode_record(RunPhase(1.0, "load")) + '{"t":"phase","at":2.0,"na')
    assert list(read_history(path)) == [RunPhase(1.0, "load")]


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"t":"phase"}', '{"t":"fase","at":1}', '{"t":"phase","at":1,"name":"end","x":1}']
)
def test_malformed_record_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(encode_record(RunPhase(1.0, "load")) + line + "\n")
    with pytest.raises(HistoryError, match=r"h\.jsonl:2: not a record"):
        list(read_history(path))
