"""What is remembered of a local cluster: <data_dir>/cluster.json. Values and their JSON form; no I/O."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pinnace.cluster.spec import APISERVER, ClusterSpec, Plan
from pinnace.runtime.procfs import Identity

FORMAT = 3
BEFORE = 2
"""The format without `identity` and `stopped`, which is read, too."""
FILE = "cluster.json"


class StateError(ValueError):
    """The text is no state of a cluster that this version knows."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process of the cluster. `process` is None from the moment it is planned until it has been started, and again while it
    is started anew."""

    plan: Plan
    process: Identity | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def component(self) -> str:
        return self.plan.component

    @property
    def pid(self) -> int:
        """0: its start is not written down."""
        return self.process.pid if self.process else 0


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`created` in Unix seconds. `made` are the folders that were created for it, outermost first. `identity`: what the marks
    in its folders say; "" for a cluster of an earlier version, which has none. `stopped`: by `pinnace stop`. `digests`: of
    the files that it was configured with, by the option that named them (pinnace.cluster.inputs)."""

    spec: ClusterSpec
    created: float
    made: tuple[Path, ...]
    processes: tuple[ProcessRecord, ...]
    identity: str = ""
    stopped: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoints(self) -> list[str]:
        """The addresses of the API servers."""
        return [record.plan.address for record in self.processes if record.component == APISERVER]

    def find(self, name: str) -> ProcessRecord:
        """Raises KeyError."""
        for record in self.processes:
            if record.name == name:
                return record
        raise KeyError(name)

    def of(self, component: str) -> list[ProcessRecord]:
        return [record for record in self.processes if record.component == component]

    def with_process(self, name: str, process: Identity | None) -> "ClusterState":
        """Raises KeyError."""
        return self.with_record(replace(self.find(name), process=process))

    def with_record(self, record: ProcessRecord) -> "ClusterState":
        """In place of the one of that name."""
        return replace(self, processes=tuple(record if r.name == record.name else r for r in self.processes))


def planned(spec: ClusterSpec, plans: Sequence[Plan], made: Sequence[Path], now: float) -> ClusterState:
    """The state before anything has been started."""
    return ClusterState(spec, now, tuple(made), tuple(ProcessRecord(plan) for plan in plans), uuid.uuid4().hex)


def encode(state: ClusterState) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "created": state.created,
            "data_dir": str(state.spec.data_dir),
            "spec": state.spec.chosen(),
            "identity": state.identity,
            "stopped": state.stopped,
            "digests": dict(state.digests),
            "made": [str(folder) for folder in state.made],
            "processes": [
                {**asdict(record.plan), "process": asdict(record.process) if record.process else None}
                for record in state.processes
            ],
        },
        indent=2,
    )


def decode(text: str) -> ClusterState:
    """Raises StateError."""
    try:
        found = json.loads(text)
        if found["format"] not in (BEFORE, FORMAT):
            raise StateError(f"it has format {found['format']}, this version of pinnace knows {BEFORE} and {FORMAT}")
        return ClusterState(
            spec=ClusterSpec.of(found["spec"], Path(found["data_dir"])),
            created=float(found["created"]),
            made=tuple(Path(folder) for folder in found["made"]),
            processes=tuple(
                ProcessRecord(
                    Plan(
                        p["component"],
                        p["name"],
                        p["address"],
                        p["http"],
                        tuple(p["argv"]),
                        tuple((name, value) for name, value in p["environment"]),
                    ),
                    Identity(**p["process"]) if p["process"] else None,
                )
                for p in found["processes"]
            ),
            identity=str(found.get("identity", "")),
            stopped=bool(found.get("stopped", False)),
            digests=dict(found.get("digests", {})),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise StateError(f"{type(error).__name__}: {error}") from error
