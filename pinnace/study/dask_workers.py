"""Runs of a study on an existing dask.distributed cluster (the extra `dask`).

Runs are independent, and equal runs give equal files, so a table does not depend on where they are executed. dask starts a run
again if its worker dies. Each worker needs the same version of pinnace, and the files of the study at the same paths. Both are
part of the key of a run: a worker with other files reports an error instead of a result. A worker should have one thread,
because runs occupy the interpreter: `dask worker --nthreads 1 --nworkers auto ADDRESS`.
"""

from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from typing import cast

from pinnace.runtime.build import build_version

CONNECT_TIMEOUT = 10.0


class WorkersError(Exception):
    """The workers cannot execute the study. The message says what to do."""


@contextmanager
def dask_workers(address: str) -> Iterator[Executor]:
    """Execute runs on the workers of the scheduler at `address`, such as tcp://10.0.0.1:8786. Raise WorkersError."""
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise WorkersError("--executor dask needs dask.distributed: pip install 'pinnace[dask]'") from None
    try:
        client = Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise WorkersError(f"no dask scheduler at {address}: {error}") from error
    with client:
        _check_versions(client.run(build_version, on_error="return"), address)
        try:
            yield cast(Executor, client.get_executor(pure=False))  # type: ignore[no-untyped-call]
        except KilledWorker as error:
            raise WorkersError(f"{error.task}: all workers that began it have died; they may need more memory") from error
        except CancelledError as error:
            raise WorkersError(f"the connection to {address} is lost; the same command continues the study") from error


def _check_versions(versions: dict[str, object], address: str) -> None:
    """Raise WorkersError unless there are workers, and all of them have this version of pinnace."""
    if not versions:
        raise WorkersError(f"the dask scheduler at {address} has no workers")
    for worker, version in sorted(versions.items()):
        if isinstance(version, Exception):
            raise WorkersError(f"worker {worker} cannot import pinnace: {version}")
        if version != build_version():
            raise WorkersError(f"worker {worker} has pinnace {version}, but this is {build_version()}")
