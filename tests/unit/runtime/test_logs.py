import json
import logging

import pytest

from pinnace.runtime import logs


def test_what_a_peer_says_begins_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver")
    logging.getLogger("a.b").info("%s comes back", "eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"I apiserver a.b: eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J comes back")


def test_a_traceback_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver")
    logging.getLogger("a.b").error("a bug", exc_info=ValueError("no"))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith("E apiserver a.b: a bug") and last == "ValueError: no"


def test_a_line_says_on_whose_behalf(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver")
    token = logs.request_id.set("mine-7")
    logging.getLogger("a.b").info("done")
    logs.request_id.reset(token)
    logging.getLogger("a.b").info("done")
    of_the_call, of_nobody = capsys.readouterr().err.splitlines()
    assert of_the_call.endswith("I apiserver a.b: done (request mine-7)") and of_nobody.endswith("a.b: done")


def test_for_programs_all_of_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("apiserver", form="json")
    token = logs.request_id.set("mine-7")
    logging.getLogger("a.b").error("what eve says: %s", "\n{}", exc_info=ValueError("no"))
    logs.request_id.reset(token)
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("ts") > 1_700_000_000
    assert found == {
        "severity": "ERROR",
        "component": "apiserver",
        "logger": "a.b",
        "msg": "what eve says: \n{}",
        "requestID": "mine-7",
        "err": "ValueError: no",
    }
