"""Validation of the query parameters of lists and watches, with the messages of Kubernetes.

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/internalversion/validation/validation.go
"""

from collections.abc import Iterable

from pinnace.api.status import Violation
from pinnace.gateway.errors import invalid_list_options
from pinnace.gateway.http import Request

NOT_OLDER_THAN, EXACT = "NotOlderThan", "Exact"
_MATCH = "resourceVersionMatch"
_WITH_CONTINUE = "Forbidden: resourceVersionMatch is forbidden when continue is provided"


def check_list_options(request: Request) -> None:
    """Raises ApiStatus (422)."""
    match, version = request.param(_MATCH), request.param("resourceVersion")
    out = list[Violation]()
    if match:
        if not version:
            out.append(Violation(_MATCH, "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if request.param("continue"):
            out.append(Violation(_MATCH, _WITH_CONTINUE))
        if match not in (EXACT, NOT_OLDER_THAN):
            out.append(_unsupported_match(match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and version == "0":
            text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            out.append(Violation(_MATCH, text))
    if request.param("sendInitialEvents"):
        out.append(Violation("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"))
    if out:
        raise invalid_list_options(out)


def check_watch_options(request: Request) -> None:
    """Raises ApiStatus (422)."""
    match, initial = request.param(_MATCH), request.param("sendInitialEvents")
    out = list[Violation]()
    if initial and match != NOT_OLDER_THAN:
        text = f"Forbidden: sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        out.append(Violation(_MATCH, text))
    if match:
        if not initial:
            text = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            out.append(Violation(_MATCH, text))
        if match != NOT_OLDER_THAN:
            out.append(_unsupported_match(match, (NOT_OLDER_THAN,)))
        if request.param("continue"):
            out.append(Violation(_MATCH, _WITH_CONTINUE))
    if out:
        raise invalid_list_options(out)


def _unsupported_match(match: str, supported: Iterable[str]) -> Violation:
    values = ", ".join(f'"{value}"' for value in supported)
    return Violation(_MATCH, f'Unsupported value: "{match[:32]}": supported values: {values}')
