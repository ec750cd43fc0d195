"""Tables of a decision that `why` and `trace` print: the nodes that filters reject, and the scores of the best nodes."""

from collections.abc import Iterator, Sequence

from pinnace.api.records import Explanation, format_list
from pinnace.cli.terminal import Table

NAMED = 4
"""Maximum number of nodes that are listed by name."""


def refusals_table(explanation: Explanation) -> Iterator[str]:
    """Yield the nodes that plugins reject, by plugin and reason, as lines."""
    yield "Reasons why nodes are not feasible (ALONE: nodes with only this reason):"
    rows = [
        (refusal.plugin, str(len(refusal.nodes)), str(refusal.alone), refusal.reason, format_list(refusal.nodes, NAMED))
        for refusal in explanation.refusals
    ]
    yield from rows_table(["PLUGIN", "NODES", "ALONE", "REASON", "WHICH"], rows)


def ranking_table(explanation: Explanation) -> Iterator[str]:
    """Yield the scores of the best nodes by plugin as lines."""
    yield "Scores from 0 to 100, multiplied by the weights:"
    plugins = list(explanation.weights)
    marks = {explanation.bound: " (here)"}
    rows = [
        (
            str(ranked.rank),
            ranked.node + marks.get(ranked.node, ""),
            score_text(ranked.total),
            *(score_text(ranked.scores[plugin]) for plugin in plugins),
        )
        for ranked in explanation.ranking
    ]
    yield from rows_table(
        ["RANK", "NODE", "TOTAL", *(f"{plugin}{weight_suffix(explanation, plugin)}" for plugin in plugins)], rows
    )


def rows_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (f"  {line}" for line in Table(headers).render(rows).splitlines())


def weight_suffix(explanation: Explanation, plugin: str) -> str:
    weight = explanation.weights[plugin]
    return "" if weight == 1 else f" x{weight:g}"


def score_text(score: float) -> str:
    return f"{score:.1f}".removesuffix(".0")
