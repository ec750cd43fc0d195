"""The smallest change that would help: where a plugin alone refuses nodes, what would satisfy it. Where there is no such node,
the node that the fewest plugins refuse, and everything that they want.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pinnace.api.records import Remedy
from pinnace.fit.requests import PODS
from scheduler.explain.advice import Reasons, advisor
from scheduler.explain.advice.resources import missing_share, size
from scheduler.explain.case import Case
from scheduler.explain.survey import Survey

MOST = 5


def remedies(case: Case, survey: Survey) -> list[Remedy]:
    """Those that open the most nodes first, at most MOST. There must be nodes, none of them feasible."""
    objections = survey.objections
    rows = np.flatnonzero(objections == objections.min())
    if objections.min() > 1:
        return [_together(case, survey, rows.tolist())]
    found = [remedy for plugin in survey.refusing(rows.tolist()) for remedy in _alone(case, survey, plugin, rows.tolist())]
    return sorted(found, key=lambda remedy: -len(remedy.nodes))[:MOST]


def without_nodes(case: Case) -> Remedy:
    """When there is none at all."""
    asked = " and ".join(
        f"{size(resource, amount)} {resource}" for resource, amount in case.pod.requests.amounts if resource != PODS
    )
    return Remedy(f"add a node{f' with {asked} free' if asked else ''}", [])


def _alone(case: Case, survey: Survey, plugin: str, rows: Sequence[int]) -> Iterator[Remedy]:
    reasons = _reasons(survey, plugin, rows)
    for remedy in advisor(plugin).remedies(case, reasons):
        yield Remedy(remedy.text, remedy.nodes, [plugin])


def _together(case: Case, survey: Survey, rows: Sequence[int]) -> Remedy:
    """All that one node wants: the one that lacks the least, the first by name."""
    row = min(rows, key=lambda row: (missing_share(case, row), case.nodes.names[row]))
    plugins = survey.refusing([row])
    texts = [advisor(plugin).remedies(case, _reasons(survey, plugin, [row]))[0].text for plugin in plugins]
    return Remedy("; and ".join(dict.fromkeys(texts)), [case.nodes.names[row]], plugins)


def _reasons(survey: Survey, plugin: str, rows: Sequence[int]) -> Reasons:
    among = np.zeros(len(survey.nodes), np.bool_)
    among[rows] = True
    found = {reason: np.flatnonzero(nodes & among).tolist() for name, reason, nodes in survey.groups() if name == plugin}
    return {reason: rows for reason, rows in found.items() if rows}
