"""What extenders said about a pod, as a value. Pure: it is by name, so it can be held against any later state of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.results import FilterResult, Verdicts

EXTENDERS = "extenders"
NOT_ASKED = "node(s) came up while extenders were asked"


@dataclass(frozen=True, slots=True)
class Objections:
    """Of one extender."""

    extender: str
    reasons: Mapping[str, str]
    """By node."""
    hopeless: frozenset[str] = frozenset()
    """The nodes of which it says that removing pods would not help."""

    def on(self, nodes: NodeTable) -> FilterResult:
        reasons = ["", *dict.fromkeys(self.reasons.values())]
        numbers = {reason: number for number, reason in enumerate(reasons)}
        codes = np.zeros(len(nodes), np.int64)
        for name, reason in self.reasons.items():
            if (row := nodes.row(name)) is not None:
                codes[row] = numbers[reason]
        return FilterResult(codes == 0, lambda: Verdicts(codes, lambda code: (reasons[code],)))


@dataclass(frozen=True, slots=True)
class Opinion:
    asked: frozenset[str]
    """The nodes that the first extender was asked about."""
    objections: Sequence[Objections] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    """By node, to be added to the sum of its weighted scores. Missing: 0."""

    def added_to(self, diagnosis: Diagnosis, nodes: NodeTable) -> Diagnosis:
        """What the filters say, and what the extenders say. A node that they have not been asked about cannot be chosen."""
        not_asked = diagnosis.feasible.copy()
        not_asked[nodes.rows(self.asked)] = False
        hopeless = np.zeros(len(nodes), np.bool_)
        hopeless[nodes.rows(name for each in self.objections for name in each.hopeless)] = True
        refusals = [(each.extender, each.on(nodes)) for each in self.objections]
        refusals.append((EXTENDERS, FilterResult.refusing(not_asked, NOT_ASKED)))
        return Diagnosis(diagnosis.nodes, [*diagnosis.refusals, *refusals], diagnosis.pre_filter, hopeless)

    def added_score(self, nodes: NodeTable) -> FloatArray:
        return np.array([self.scores.get(name, 0.0) for name in nodes.names], np.float64)
