"""Messages, hints and exit codes of errors of the client library and of manifests."""

import re

from pinnace.api.manifest import ManifestError
from pinnace.api.resources import by_name
from pinnace.api.selectors import SelectorError
from pinnace.api.status import APPLY_CONFLICT
from pinnace.cli.outcomes import ErrorReport, ExitCode
from pinnace.client import errors
from pinnace.client.config import HINT

_CODES: tuple[tuple[type[errors.ApiError], ExitCode], ...] = (
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.AlreadyExists, ExitCode.CONFLICT),
    (errors.Conflict, ExitCode.CONFLICT),
    (errors.Fenced, ExitCode.CONFLICT),
    (errors.Invalid, ExitCode.INVALID),
    (errors.Unavailable, ExitCode.UNAVAILABLE),
)

OUT_OF_SPACE = "delete unused objects, compact and defragment etcd, then disarm the alarm"
"""The hint for etcd's alarm NOSPACE."""
_HINTS = {
    "NamespaceNotFound": "create it first: `pinnace apply` a manifest of kind Namespace",
    "ResourceVersionTooLarge": "`pinnace get -o yaml` shows resourceVersions; a revision exists only after a write",
    "NoCandidate": "`pinnace status` shows the running processes; --name sets the name of a candidate",
    "OutcomeUnknown": "check the state with `pinnace get` before you retry",
    "KubeletUnavailable": "`pinnace get nodes` shows the Ready nodes; the nodes of a stopped kubelet are NotReady",
    "UIDMismatch": "the object was deleted and recreated: read it again",
    "OutOfSpace": OUT_OF_SPACE,
    APPLY_CONFLICT: "remove the fields from the manifest, or use --force-conflicts to become their manager",
    errors.STORAGE_UNAVAILABLE: "the API servers do not reach etcd: `pinnace doctor` finds the cause, "
    "`pinnace start` starts the missing processes of a local cluster",
}
"""Hints by the reason of the error. Other hints depend on the class of the error."""


def explain_client_error(error: BaseException) -> ErrorReport | None:
    """Return the report of an error of the client library, a manifest or a selector; None for any other error."""
    match error:
        case errors.ApiError():
            return _explain_refusal(error)
        case ManifestError():
            return ErrorReport(
                error.problems, "nothing was changed: correct the errors and try again", ExitCode.INVALID, speaks=True
            )
        case SelectorError():
            return ErrorReport((error.message,), error.hint, ExitCode.USAGE)
    return None


def _explain_refusal(error: errors.ApiError) -> ErrorReport:
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.SERVER)
    if not error.reason and isinstance(error, errors.Unavailable):  # an error of the client, not of the server
        return ErrorReport((error.message,), _hint_for_error(error), code)
    head, *each = error.message, *(f"  {violation}" for violation in error.violations)
    if error.reason == APPLY_CONFLICT:  # the message contains all conflicts
        each = []
    elif len(each) > 1:
        head = head.partition(f": {error.violations[0]}")[0] + ":"
    else:
        each = []
    return ErrorReport(
        (f"Error from server ({error.reason or type(error).__name__}): {head}", *each),
        _hint_for_error(error),
        code,
        speaks=True,
    )


def _hint_for_error(error: errors.ApiError) -> str:
    if error.reason in _HINTS:
        return _HINTS[error.reason]
    if (told := dict(error.metadata).get("hint")) is not None:
        return told
    match error:
        case errors.NotFound():
            word = re.match(r'(\w+) "', error.message)
            resource = by_name(word[1]) if word else None
            return f"`pinnace get {resource.plural}{' -A' * resource.namespaced}` lists existing objects" if resource else ""
        case errors.AlreadyExists():
            return "`pinnace apply` changes existing objects"
        case errors.Conflict():
            return "read it again and retry, or use `pinnace apply` without a resourceVersion"
        case errors.Fenced():
            return "`pinnace leader` shows the current leader"
        case errors.Invalid():
            return f"{'the object was not written: ' * (error.reason == 'Invalid')}correct the errors and try again"
        case errors.Expired():
            oldest = dict(error.metadata).get("compactRevision")
            return f"list again; --at-revision accepts revisions from {oldest}" if oldest else "list again"
        case errors.Timeout():
            return "try again, or set a longer --timeout; `pinnace doctor` diagnoses the servers"
        case errors.Internal() if error.request_id:
            return f"see the server's log for request {error.request_id}; please report it"
        case errors.Unavailable():
            return "the server is temporarily unavailable; try again later" if error.reason else HINT
    return ""
