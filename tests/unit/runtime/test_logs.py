import json
import logging

import pytest

from pinnace.runtime import logs


def test_control_characters_from_a_peer_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("apiserver")
    logging.getLogger("a.b").info("%s comes back", "eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"I apiserver a.b: eve\r\n2026-01-31T12:00:00.000Z E apiserver: forged\u2028\x1b[2J comes back")


def test_traceback_has_separate_lines_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("apiserver")
    logging.getLogger("a.b").error("a bug", exc_info=ValueError("no"))
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith("E apiserver a.b: a bug") and last == "ValueError: no"


def test_text_line_contains_the_request_id(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("apiserver")
    token = logs.request_id.set("mine-7")
    logging.getLogger("a.b").info("done")
    logs.request_id.reset(token)
    logging.getLogger("a.b").info("done")
    of_the_call, of_no_call = capsys.readouterr().err.splitlines()
    assert of_the_call.endswith("I apiserver a.b: done (request mine-7)") and of_no_call.endswith("a.b: done")


def test_json_record_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("apiserver", form="json")
    token = logs.request_id.set("mine-7")
    logging.getLogger("a.b").error("what eve says: %s", "\n{}", exc_info=ValueError("no"))
    logs.request_id.reset(token)
    (line,) = capsys.readouterr().err.splitlines()
    result = json.loads(line)
    assert result.pop("ts") > 1_700_000_000
    assert result == {
        "severity": "ERROR",
        "component": "apiserver",
        "logger": "a.b",
        "msg": "what eve says: \n{}",
        "requestID": "mine-7",
        "err": "ValueError: no",
    }


def test_departed_client_of_a_stream_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Each client that left during the output of exec caused an error with a traceback, in the API server and the kubelet."""
    logs.configure_logging("apiserver")
    left = type("ExecuteBatchError", (Exception,), {})('Failed "execute_batch": (<SendMessageOperation>,)')
    log = logging.getLogger("grpc._cython.cygrpc")
    log.error("ExecuteBatchError raised in core by servicer method [/pinnace.v1.Pods/Exec]", exc_info=left)
    assert capsys.readouterr().err == ""
    log.error("ValueError raised in core by servicer method [/pinnace.v1.Pods/Exec]", exc_info=ValueError("a bug"))
    assert "a bug" in capsys.readouterr().err
