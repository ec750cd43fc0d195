"""The errors of local clusters. Each has a message of one line and a hint.

ClusterError
+-- SpecError            The requested cluster is not possible.
+-- OtherOptions         The cluster in the folder was started with other options.
+-- AlreadyRunning       The folder has a running cluster.
+-- Busy                 Another `pinnace up` or `down` uses the folder.
+-- NoCluster            The folder has no running cluster.
+-- FolderError          The folder cannot be used.
+-- StartFailed          A process of the cluster did not start; `logs` contains the reason.
|   +-- StartTimeout     A process did not become ready in time.
+-- HelperError          A helper process failed, such as the proxies of pinnace.cluster.links.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path


class ClusterError(Exception):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SpecError(ClusterError):
    pass


class OtherOptions(ClusterError):
    pass


class AlreadyRunning(ClusterError):
    pass


class ClusterBusy(ClusterError):
    pass


class NoCluster(ClusterError):
    pass


class FolderError(ClusterError):
    pass


class StartFailed(ClusterError):
    """`logs`: the last lines of the relevant logs, by process; `paths`: the log files."""

    def __init__(
        self,
        message: str,
        *,
        logs: Mapping[str, Sequence[str]] | None = None,
        paths: Mapping[str, Path] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.logs = dict(logs or {})
        self.paths = dict(paths or {})


class StartTimeout(StartFailed):
    pass


def join_errors(failures: Sequence[StartFailed], hint: str) -> StartFailed:
    """Combine several errors. `hint`: used if no error has a hint. The result is a timeout if all errors are timeouts."""
    kind = StartTimeout if all(isinstance(failure, StartTimeout) for failure in failures) else StartFailed
    logs = {name: tail for failure in failures for name, tail in failure.logs.items()}
    paths = {name: path for failure in failures for name, path in failure.paths.items()}
    hints = dict.fromkeys(failure.hint or hint for failure in failures)
    return kind("; ".join(failure.message for failure in failures), logs=logs, paths=paths, hint="; ".join(hints))
