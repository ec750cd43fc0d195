"""What somebody who examines a cluster puts around its processes. Without fittings a cluster is as `pinnace up` starts it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Wiring = Callable[[str, str, str], str]
"""(source, target, address) -> the address that the process `source` is to use for the process `target`, which listens at
`address`. Asked once, when the cluster is planned: a process that is started again uses the same one."""


def direct(source: str, target: str, address: str) -> str:
    return address


def no_arguments(process: str) -> Sequence[str]:
    return ()


def no_folder(member: str) -> Path | None:
    return None


def no_environment(process: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Fittings:
    """By the names of the processes: how they reach each other, and further arguments and environment variables of each; and
    the data folder of a member of etcd, where it is not in the cluster's own (whoever names it removes it)."""

    wiring: Wiring = direct
    arguments: Callable[[str], Sequence[str]] = no_arguments
    environment: Callable[[str], Mapping[str, str]] = no_environment
    etcd_data: Callable[[str], Path | None] = no_folder


PLAIN = Fittings()
