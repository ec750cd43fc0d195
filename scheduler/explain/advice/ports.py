"""NodePorts: who has the port."""

from collections.abc import Iterator, Sequence

from pinnace.api.records import Remedy
from pinnace.fit import HostPort
from scheduler.explain.advice.advisor import Reasons, names_of, rows_of
from scheduler.explain.case import Case


class Taken:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        rows = sorted(rows_of(reasons), key=lambda row: case.nodes.names[row])
        ports = " and ".join(dict.fromkeys(_text(port) for row in rows for port, _ in _holders(case, row)))
        first = ", ".join(dict.fromkeys(pod for _, pod in _holders(case, rows[0])))
        return [Remedy(f"free host port {ports}, which {first} has on {case.nodes.names[rows[0]]}", names_of(case, rows))]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"host port {_text(port)} is taken by {pod}" for port, pod in _holders(case, row)]


def _holders(case: Case, row: int) -> Iterator[tuple[HostPort, str]]:
    """(port that is wanted, pod that has it)."""
    for wanted in case.pod.requests.ports:
        for other in case.placed.get(case.nodes.names[row], ()):
            if any(wanted.conflicts(port) for port in other.requests.ports):
                yield wanted, other.key


def _text(port: HostPort) -> str:
    return f"{port.port}/{port.protocol}"
