"""What can go wrong with a local cluster. Each error is one line for a person, with a hint: the way out.

ClusterError
+-- SpecError            such a cluster cannot be.
+-- AlreadyRunning       the folder has a running cluster.
+-- Busy                 another `pinnace up` or `down` is at work in the folder.
+-- NoCluster            the folder has no running cluster.
+-- FolderError          the folder cannot be used.
+-- StartFailed          a process of the cluster did not start; `process` and `log_tail` say more.
|   +-- StartTimeout     it did not become ready in time.
+-- HelperError          a process that stands between the others failed (pinnace.cluster.helper).
"""

from collections.abc import Sequence


class ClusterError(Exception):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SpecError(ClusterError):
    pass


class AlreadyRunning(ClusterError):
    pass


class Busy(ClusterError):
    pass


class NoCluster(ClusterError):
    pass


class FolderError(ClusterError):
    pass


class StartFailed(ClusterError):
    def __init__(self, message: str, *, process: str = "", log_tail: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.process = process
        self.log_tail = tuple(log_tail)


class StartTimeout(StartFailed):
    pass
