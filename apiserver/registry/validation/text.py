"""Text that becomes a path, an argument or a variable of a process: what no operating system takes."""

from apiserver.registry.validation.violations import invalid
from pinnace.api.status import Violation


def validate_no_null(text: str, path: str, out: list[Violation]) -> None:
    """There it would end the text. Kubernetes lets it through, and its runtimes refuse it."""
    if "\0" in text:
        out.append(invalid(path, text, "must not contain null characters"))
