"""Error messages, hints and exit codes."""

import pytest

from pinnace.api.manifest import ManifestError
from pinnace.api.selectors import SelectorError
from pinnace.api.status import Code, Refusal, Violation
from pinnace.apiserver.cacher.store import RevisionExpired
from pinnace.apiserver.errors import to_refusal
from pinnace.cli.errors import explain_error, report_to_stderr, run_guarded
from pinnace.cli.outcomes import ExitCode, Failure, Reported, worst_exit_code
from pinnace.cli.settings import Settings
from pinnace.client.errors import from_refusal

REFUSALS = [
    (Code.NOT_FOUND, "NotFound", 'pods "a" not found', ExitCode.NOT_FOUND, "`pinnace get pods -A`"),
    (Code.NOT_FOUND, "NamespaceNotFound", 'namespaces "x" not found', ExitCode.NOT_FOUND, "create it first"),
    (Code.ALREADY_EXISTS, "AlreadyExists", 'pods "a" already exists', ExitCode.CONFLICT, "`pinnace apply`"),
    (Code.ABORTED, "Conflict", 'pods "a": resourceVersion 812 is stale, now 840', ExitCode.CONFLICT, "read it again"),
    (Code.FAILED_PRECONDITION, "Fenced", "token 3 does not lead", ExitCode.CONFLICT, "`pinnace leader`"),
    (Code.INVALID_ARGUMENT, "BadRequest", "the field selector is wrong", ExitCode.INVALID, "hint: correct the errors"),
    (Code.UNAVAILABLE, "StorageUnavailable", "etcd: no quorum", ExitCode.UNAVAILABLE, "pinnace doctor"),
    (Code.UNAVAILABLE, "OutcomeUnknown", "it may have happened", ExitCode.UNAVAILABLE, "`pinnace get`"),
    (Code.OUT_OF_RANGE, "Expired", "compacted", ExitCode.SERVER, "list again"),
    (Code.RESOURCE_EXHAUSTED, "OutOfSpace", "etcd is out of space", ExitCode.SERVER, "compact"),
    (Code.INTERNAL, "Internal", "a bug", ExitCode.SERVER, ""),
]


def error(code: Code, reason: str, message: str, *violations: Violation) -> Exception:
    return from_refusal(Refusal(code, reason, message, violations))


def fail(problem: BaseException) -> object:
    raise problem


@pytest.mark.parametrize(("code", "reason", "message", "exit_code", "hint"), REFUSALS)
def test_refusal_has_message_hint_and_exit_code(
    code: Code, reason: str, message: str, exit_code: ExitCode, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_guarded(lambda: fail(error(code, reason, message)), Settings()) == exit_code
    captured = capsys.readouterr()
    first, *rest = captured.err.splitlines()
    assert first == f"Error from server ({reason}): {message}" and not captured.out
    assert len(rest) <= 1 and hint in "".join(rest)


def test_violations_are_printed_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    name, cpu = Violation("metadata.name", "required"), Violation("spec.containers[0].resources.requests[cpu]", "negative")
    message = f'Pod "a" is invalid: {name}; {cpu}'
    assert run_guarded(lambda: fail(error(Code.INVALID_ARGUMENT, "Invalid", message, name, cpu)), Settings()) == 5
    assert capsys.readouterr().err.splitlines() == [
        'Error from server (Invalid): Pod "a" is invalid:',
        "  metadata.name: required",
        "  spec.containers[0].resources.requests[cpu]: negative",
        "hint: the object was not written: correct the errors and try again",
    ]
    single = error(Code.INVALID_ARGUMENT, "Invalid", f'Pod "a" is invalid: {name}', name)
    assert run_guarded(lambda: fail(single), Settings()) == 5
    assert capsys.readouterr().err.startswith('Error from server (Invalid): Pod "a" is invalid: metadata.name: required\nhint:')


def test_location_precedes_each_line_except_the_hint(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = Violation("x", "1"), Violation("y", "2")
    report = explain_error(error(Code.INVALID_ARGUMENT, "Invalid", f"Pod is invalid: {a}; {b}", a, b))
    assert report
    report_to_stderr(report, "pods.yaml:14")
    assert [line.startswith("pods.yaml:14: ") for line in capsys.readouterr().err.splitlines()] == [True, True, True, False]


def test_failure_of_an_object_is_prefixed_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    report_to_stderr(Failure("is already paused").report, "deployment.apps/web")
    assert capsys.readouterr().err == "error: deployment.apps/web: is already paused\n"


def test_expired_revision_has_one_hint_and_the_oldest_revision(capsys: pytest.CaptureFixture[str]) -> None:
    gone = from_refusal(to_refusal(RevisionExpired(42), "List"))
    assert run_guarded(lambda: fail(gone), Settings()) == ExitCode.SERVER
    told = capsys.readouterr().err
    assert told.count("list again") == 1 and "--at-revision accepts revisions from 42" in told


def test_unavailable_kubelet_hint_does_not_blame_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    run_guarded(lambda: fail(error(Code.UNAVAILABLE, "KubeletUnavailable", "the kubelet does not answer")), Settings())
    hint = capsys.readouterr().err.splitlines()[1]
    assert "the server" not in hint and "`pinnace get nodes`" in hint


@pytest.mark.parametrize(
    ("problem", "lines", "code"),
    [
        (Failure("no"), ["error: no"], ExitCode.SERVER),
        (Failure("no", hint="yes", code=ExitCode.VERDICT), ["error: no", "hint: yes"], ExitCode.VERDICT),
        (Failure("no", details=["a", "b"]), ["error: no", "  a", "  b"], ExitCode.SERVER),
        (ManifestError(["x.yaml:1: a", "x.yaml:2: b"]), ["x.yaml:1: a", "x.yaml:2: b", "hint: "], ExitCode.INVALID),
        (SelectorError("what?", "so"), ["error: what?", "hint: so"], ExitCode.USAGE),
        (TimeoutError("timed out after 3 s"), ["error: timed out after 3 s", "hint: "], ExitCode.UNAVAILABLE),
        (
            error(Code.UNAVAILABLE, "", "cannot connect to the API server at h:1"),
            ["error: cannot", "hint: "],
            ExitCode.UNAVAILABLE,
        ),
        (Reported(ExitCode.CONFLICT), [], ExitCode.CONFLICT),
        (KeyboardInterrupt(), [], ExitCode.INTERRUPTED),
    ],
)
def test_other_errors_have_message_hint_and_exit_code(
    problem: BaseException, lines: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_guarded(lambda: fail(problem), Settings()) == code
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(lines) and all(line.startswith(start) for line, start in zip(told, lines, strict=True))


def test_expected_error_has_a_traceback_only_with_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    run_guarded(lambda: fail(Failure("no")), Settings())
    assert "Traceback" not in capsys.readouterr().err
    run_guarded(lambda: fail(Failure("no")), Settings(verbose=1))
    assert "Traceback" in capsys.readouterr().err


def test_unexpected_error_is_printed_with_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(lambda: fail(ZeroDivisionError("x")), Settings()) == ExitCode.SERVER
    err = capsys.readouterr().err
    assert "Traceback" in err and "error: unexpected ZeroDivisionError: x" in err


def test_foreign_text_is_escaped_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run_guarded(lambda: fail(Failure("bad\x1b]0;title\x07\nname")), Settings())
    assert capsys.readouterr().err == "error: bad]0;title name\n"


def test_worst_exit_code_wins() -> None:
    assert worst_exit_code([]) is ExitCode.OK
    assert worst_exit_code([ExitCode.NOT_FOUND, ExitCode.INVALID, ExitCode.CONFLICT]) is ExitCode.INVALID
    assert worst_exit_code([ExitCode.UNAVAILABLE, ExitCode.SERVER]) is ExitCode.SERVER


def test_command_result_is_the_exit_code() -> None:
    assert run_guarded(lambda: None, Settings()) == 0
    assert run_guarded(lambda: 7, Settings()) == 7
