"""Requests to the status endpoints of schedulers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from pinnace.api.records import Dump, Malformed, from_json
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.terminal import print_note
from pinnace.cluster.errors import FolderError
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.inputs import CONFIG, PLUGIN, component_options
from pinnace.cluster.spec import SCHEDULER
from pinnace.runtime.http import parse_address

D = TypeVar("D", bound=Dump)

TIMEOUT = 5.0
"""Timeout of each request, in seconds."""
_direct = build_opener(ProxyHandler({}))
"""Opens loopback addresses independently of http_proxy."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The flags --config and --plugin of a scheduler. `source` is the directory of the local cluster that they come from, or
    empty if the user specified them. `python_path` is the module path of the plugins."""

    config: str = ""
    plugins: Sequence[str] = ()
    source: str = ""
    python_path: str = ""


def ask_scheduler(kind: type[D], http: str, data_dir: Path) -> D:
    """Return the state of the scheduler at `http`, or of the leading scheduler of the local cluster. If it does not lead, print
    a note. Raises Failure or FolderError."""
    if http:
        try:
            parse_address(http)
        except ValueError as error:
            raise usage_failure(
                f"--http: {error}", hint="use the --http address of a scheduler, such as 127.0.0.1:7481"
            ) from None
        result = _read_state(http, kind)
    else:
        result = _of_cluster(kind, data_dir)
    if not result.leading:
        print_note(f"{result.name} is on standby: this is the state with which it would become the leader")
    return result


def read_scheduler_options(data_dir: Path) -> SchedulerOptions:
    """Return the flags of the schedulers of a local cluster. Empty if there is no cluster, or the flags are the defaults."""
    try:
        state = ClusterFolder(data_dir).read()
    except FolderError:
        return SchedulerOptions()
    plan = next((record.plan for record in state.processes_of(SCHEDULER)), None) if state is not None else None
    if plan is None:
        return SchedulerOptions()
    said = component_options(plan)
    python_path = dict(plan.environment).get("PYTHONPATH", "")
    return SchedulerOptions(str(said.get(CONFIG, "")), list(said.get(PLUGIN, ())), str(data_dir), python_path)


def _of_cluster(kind: type[D], data_dir: Path) -> D:
    state = ClusterFolder(data_dir).read()
    addresses = [record.plan.http for record in state.processes_of(SCHEDULER)] if state is not None else []
    if not addresses:
        hint = "specify the address of a scheduler with --http, or a local cluster with --data-dir"
        raise Failure(f"no schedulers of a local cluster found in {data_dir}", hint=hint, code=ExitCode.NOT_FOUND)
    result, failures = [], []
    for address in addresses:
        try:
            result.append(_read_state(address, kind))
        except Failure as failure:
            failures.append(failure)
    if not result:
        raise failures[0]
    return next((item for item in result if item.leading), result[0])


def _read_state(address: str, kind: type[D]) -> D:
    try:
        with _direct.open(f"http://{address}{kind.path}", timeout=TIMEOUT) as answer:
            return from_json(kind, json.load(answer))
    except HTTPError as error:
        with error:
            message = f"{address} responds to {kind.path} with {error.code} {error.reason}"
        raise Failure(
            message, hint="check whether it is the --http address of a scheduler", code=ExitCode.UNAVAILABLE
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        message = f"no scheduler responds at {address}: {getattr(reason, 'strerror', None) or reason}".lower()
        raise Failure(message, hint="`pinnace status` shows the running processes", code=ExitCode.UNAVAILABLE) from None
    except (HTTPException, ValueError, RecursionError) as error:
        how = f": {error}" if isinstance(error, Malformed) else ""
        message = f"{address} does not respond like a scheduler{how}"
        raise Failure(message, hint="check whether it is the --http address of a scheduler") from None
