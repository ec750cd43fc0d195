"""Recordings that are opened after the run."""

import json
import shutil
from pathlib import Path

from pinnace.history.records import (
    ElectionFacts,
    FaultRecord,
    NodeFacts,
    PodFacts,
    Record,
    RunInfo,
    StoredChange,
    TermFacts,
    encode_record,
    read_history,
)
from pinnace.timeline.items import TimelineItem
from pinnace.timeline.recording import RecordedSource
from pinnace.timeline.site import export_page
from pinnace.verification.check.check import check_history

NODE = NodeFacts("u", (("cpu", 4000), ("memory", 1 << 30), ("pods", 10)))
HISTORY: list[Record] = [
    RunInfo(started=1000.0, what="chaos"),
    StoredChange(1.0, 1, "/registry/nodes/a", "1", 1, 0, NODE),
    StoredChange(1.0, 2, "/registry/nodes/b", "2", 2, 0, NODE),
    StoredChange(2.0, 3, "/registry/pods/default/x", "3", 3, 0, PodFacts("x")),
    StoredChange(3.0, 4, "/registry/pods/default/x", "4", 3, 0, PodFacts("x", node="a")),
    StoredChange(4.0, 5, "/registry/pods/default/x", "5", 3, 0, PodFacts("x", node="b")),  # bound twice
]
JOURNAL: list[Record] = [FaultRecord(1, "kill-leader", "scheduler-0", 3.5, 3.6)]


def files(folder: Path) -> list[Path]:
    folder.mkdir()
    result = []
    for name, records in (("etcd.jsonl", HISTORY), ("chaos.jsonl", JOURNAL)):
        result.append(folder / name)
        result[-1].write_text("".join(encode_record(record) for record in records))
    return result


def verdicts(items: list[TimelineItem]) -> dict[str, str]:
    return {item[3]: item[4] for item in items if item[0] == "v"}


def test_recording_of_a_chaos_run_has_its_verdicts(tmp_path: Path) -> None:
    paths = files(tmp_path / "run")
    result = verdicts(RecordedSource(paths, check=check_history).log.all_items())
    judged = {
        verdict.name: verdict.status
        for verdict in check_history([item for path in paths for item in read_history(path)]).verdicts
    }
    assert result == judged and "violated" in result.values() and len(set(result.values())) > 1


def test_recording_does_not_depend_on_path_or_file_order(tmp_path: Path) -> None:
    paths = files(tmp_path / "run")
    before = RecordedSource(paths, check=check_history)
    moved = Path(shutil.move(tmp_path / "run", tmp_path / "later"))
    after = RecordedSource([moved / "chaos.jsonl", moved / "etcd.jsonl"], check=check_history)
    assert sorted(map(str, after.log.all_items())) == sorted(map(str, before.log.all_items()))
    assert after.title == before.title == "chaos"
    marks = [item for item in after.log.all_items() if item[0] == "m"]
    assert [(item[4], item[5], item[1], item[7]) for item in marks] == [("scheduler-0", "fault", 1002.5, 1002.6)]


def test_exported_page_has_the_verdicts(tmp_path: Path) -> None:
    source = RecordedSource(files(tmp_path / "run"))
    data = export_page(source).decode().split('id="recording">', 1)[1].split("</script>", 1)[0]
    assert verdicts(json.loads(data)["items"]) == verdicts(source.log.all_items())


def test_times_are_relative_to_the_start_of_the_run(tmp_path: Path) -> None:
    """A chaos cluster starts between the first record and etcd's first change."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(encode_record, [RunInfo(started=1000.0, what="chaos", at=10.0), *HISTORY[1:2], *JOURNAL])))
    assert [item[1] for item in RecordedSource([path]).log.all_items() if item[0] in "nm"] == [991.0, 993.5]


def test_recorded_terms_have_the_times_of_their_records(tmp_path: Path) -> None:
    """The deletion of a key was recorded a second late. The end by the record was earlier, so that the late one came last."""
    key, path = "/registry/elections/scheduler", tmp_path / "run.jsonl"
    record = TermFacts("s-0", 1001.0, 1004.0, "no heartbeats", heartbeat=1003.0)
    records: list[Record] = [
        RunInfo(started=1000.0, at=1.0),
        StoredChange(2.0, 7, key, "", 7, 0, ElectionFacts("s-0", began=1001.0)),
        StoredChange(6.0, 8, key),
        StoredChange(6.0, 9, key, "", 9, 0, ElectionFacts("s-1", began=1004.25)),
        StoredChange(7.0, 10, "/registry/terms/scheduler/7", "", 10, 0, record),
    ]
    path.write_text("".join(map(encode_record, records)))
    terms = [item for item in RecordedSource([path]).log.all_items() if item[0] == "t"]
    assert [(item[1], *item[4:]) for item in terms] == [
        (1001.0, 7, "s-0", None, "", None, None),
        (1001.0, 7, "s-0", 1004.0, "no heartbeats", None, None),
        (1004.25, 9, "s-1", None, "", 0.25, 1.25),
    ]
