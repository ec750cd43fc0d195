"""The runs of `pinnace chaos`: each in a folder, which goes when nothing in it is worth keeping."""

import json
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pinnace.chaos import ChaosError
from pinnace.chaos.load import LoadError
from pinnace.chaos.scenarios.base import PlayError
from pinnace.chaos.scenarios.figures import Moment
from pinnace.chaos.stage import STORED
from pinnace.chaos.world import NotPossible
from pinnace.check.history import HistoryError
from pinnace.check.verdict import Status
from pinnace.cli.local import running
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.client.errors import ApiError
from pinnace.cluster.errors import ClusterError


class Report(Protocol):
    kept: str
    """Where the history and the logs are, "" when they were removed."""

    @property
    def status(self) -> Status: ...
    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Report)


def new_folder(save: Path | None, prefix: str) -> Path:
    """The folder that is named, which must be empty, or a temporary one. Raises Failure."""
    if save is None:
        return Path(tempfile.mkdtemp(prefix=prefix))
    try:
        save.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise usage(f"{save} cannot be used: {error.strerror}", hint="name another folder with --save") from error
    if any(save.iterdir()):
        raise usage(f"{save} is not empty", hint="name another folder with --save")
    return save.resolve()


def judged(run: Coroutine[Any, Any, R], folder: Path, *, keep: bool) -> R:
    """The report of the run. Removes the folder unless it is to be kept, or there is something in it to look at: a bad verdict,
    or what was recorded until the run failed. Then the error says where it is. Raises Failure, and ClusterError of a cluster
    that did not start."""
    try:
        report = running.run(run, hangup=True)
    except KeyboardInterrupt:
        if not keep:
            shutil.rmtree(folder)
        raise
    except (ChaosError, LoadError, ClusterError, ApiError, HistoryError, PlayError, NotPossible, OSError) as error:
        if isinstance(error, ClusterError) and not (folder / STORED).exists():  # what its logs say is told with the error
            if not keep:
                shutil.rmtree(folder)
            raise
        seen = [moment_line(moment) for moment in error.moments] if isinstance(error, PlayError) else []
        raise Failure(
            f"the run proves nothing: {error}", hint=f"history and logs are in {folder}", code=ExitCode.VERDICT, details=seen
        ) from error
    except BaseException as error:
        error.add_note(f"history and logs are in {folder}")
        raise
    if keep or report.status != "holds":
        report.kept = str(folder)
        with suppress(OSError):  # the verdict is told in any case: a full disk must not take it away
            (folder / "report.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    else:
        shutil.rmtree(folder)
    return report


def moment_line(moment: Moment) -> str:
    """Milliseconds after the fault, in a column, and what happened."""
    return f"{'t =' if moment.hit else '  +'} {moment.at * 1000:>6,.0f} ms  {moment.what}"
