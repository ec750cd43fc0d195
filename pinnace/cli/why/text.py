"""An explanation, as a person reads it."""

from collections.abc import Iterator, Sequence

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.records import Asked, Explanation, listing
from pinnace.cli.describe.common import events_table
from pinnace.cli.describe.text import render
from pinnace.cli.terminal.table import Table, one_line

NAMED = 4
"""Nodes that are named where there are many."""


def lines(found: Explanation, events: Sequence[Event], now: float, *, leaderless: str = "") -> Iterator[str]:
    """Without newlines. `events`: what its scheduler said of the pod. `leaderless`: the election that its scheduler must win
    first, and nobody has."""
    yield from map(one_line, _headline(found, leaderless))
    for section in _sections(found):
        text = [line for line in section if line]
        if text:
            yield ""
            yield from text
    yield ""
    yield from render({"Events of its scheduler": events_table(events, now)})


def _headline(found: Explanation, leaderless: str) -> Iterator[str]:
    pod, bound = f"pod {found.pod}", found.bound
    if found.unknown:
        yield f"{_place(found) or f'{pod} is pending'}. Nothing more is known: {found.unknown}."
        return
    if found.filters_only:
        yield f"{_place(found) or f'{pod} is pending'}. How its scheduler decides is not known here: {found.unconfirmed}."
        yield f"What follows is certain only for the filters of {found.configuration} that the scheduler has enabled, too:"
        passing = f"{found.feasible} of {_nodes(found.nodes)} pass these filters."
        yield f"{passing} Other filters, scores and preemption are not known."
        return
    if found.unconfirmed:
        yield f"This follows {found.configuration}. It is not known to be what the scheduler uses: {found.unconfirmed}."
    if bound:
        yield f"{_place(found)}. If it were placed again now, itself taken out:"
    if found.problem:
        yield f"{'It would not be placed' if bound else f'{pod} is pending'}: {found.problem}."
    elif not bound and not found.feasible:
        yield f"{pod} is pending: no node can take it."
    elif not bound and found.extenders:
        yield f"{pod} is pending. The plugins of its scheduler find room for it; its extenders may refuse these nodes."
    elif not bound:
        yield f"{pod} is pending, and there is room for it: it will be placed as soon as it is its turn."
    if leaderless:
        yield f'Nobody leads election "{leaderless}": until somebody does, nothing is scheduled.'
    if found.message:
        yield found.message
    if found.feasible:
        yield f"{found.feasible} of {_nodes(found.nodes)} can take it. {_best(found)}".rstrip()
    if found.extenders:
        asked = ", ".join(found.extenders)
        yield f"Extenders can refuse nodes and add to scores, and this command does not ask them: {asked}."


def _place(found: Explanation) -> str:
    """Empty: it has none."""
    pod, bound = f"pod {found.pod}", found.bound
    if found.node_is_gone:
        return f"{pod} is bound to {bound}, and there is no such node; pods of a node that is gone are removed within a minute"
    return f"{pod} is on {bound}" if bound else ""


def _best(found: Explanation) -> str:
    ranking = found.ranking
    if not ranking:
        return ""
    equal = f" and {found.best - 1} more" if found.best > 1 else ""
    own = next((ranked for ranked in ranking if ranked.node == found.bound), None)
    if own is not None and own.rank == 1:
        chance = "" if found.extenders else ": one of them is chosen by chance"
        others = f", like {_nodes(found.best - 1, 'other')}{chance}" if found.best > 1 else ""
        return f"{own.node} has the best score{' of the plugins' if found.extenders else ''}{others}."
    first = f"The best score is that of {ranking[0].node}{equal}"
    if own is not None:
        return f"{first}; {own.node} comes as number {own.rank}."
    if found.bound and not found.node_is_gone:
        return f"{first}; {found.bound} could not take it any more."
    return f"{first}."


def _sections(found: Explanation) -> Iterator[Iterator[str]]:
    if found.asked:
        yield _asked(found, found.asked)
    else:
        if found.refusals:
            yield _refusals(found)
        yield _remedies(found)
        yield _preemption(found)
    if found.ranking and not (found.asked and found.asked.objections):
        yield _ranking(found)


def _refusals(found: Explanation) -> Iterator[str]:
    yield "What rules nodes out (ALONE: nodes ruled out by this reason only):"
    rows = [
        (each.plugin, str(len(each.nodes)), str(each.alone), each.reason, listing(each.nodes, NAMED)) for each in found.refusals
    ]
    yield from _table(["PLUGIN", "NODES", "ALONE", "REASON", "WHICH"], rows)


def _remedies(found: Explanation) -> Iterator[str]:
    if found.remedies:
        several = len(found.remedies) > 1
        yield f"The smallest change{'s' if several else ''} that would help{', any one of them' if several else ''}:"
        for each in found.remedies:
            then = f"  -> {listing(each.nodes, NAMED)}" if each.nodes else ""
            yield f"  * {one_line(each.text)}{then}"


def _preemption(found: Explanation) -> Iterator[str]:
    if found.preemption:
        yield f"Preemption: {one_line(found.preemption)}."


def _asked(found: Explanation, asked: Asked) -> Iterator[str]:
    if asked.objections:
        yield f"{asked.node} cannot take it:"
        yield from _table(["PLUGIN", "WHY"], [(each.plugin, detail) for each in asked.objections for detail in each.details])
        return
    ranked = next((each for each in found.ranking if each.node == asked.node), None)
    if ranked is None:
        yield f"{asked.node} can take it."
        return
    best = found.ranking[0]
    if ranked.rank == 1:
        yield f"{asked.node} can take it, and no node is better."
        return
    total, most = _score(ranked.total), _score(best.total)
    yield f"{asked.node} can take it, but it is number {ranked.rank}: {total} points, where {best.node} has {most}."
    behind = {plugin: (best.scores[plugin] - score) * found.weights[plugin] for plugin, score in ranked.scores.items()}
    plugin = max(behind, key=lambda plugin: behind[plugin])
    here, there = _score(ranked.scores[plugin]), _score(best.scores[plugin])
    yield f"Most of it is {plugin}: {here} instead of {there}{_weight(found, plugin)}."


def _ranking(found: Explanation) -> Iterator[str]:
    yield "Scores, 0 to 100 each, times their weights:"
    plugins = list(found.weights)
    marks = {found.bound: " (here)"}
    rows = [
        (
            str(each.rank),
            each.node + marks.get(each.node, ""),
            _score(each.total),
            *(_score(each.scores[plugin]) for plugin in plugins),
        )
        for each in found.ranking
    ]
    yield from _table(["RANK", "NODE", "TOTAL", *(f"{plugin}{_weight(found, plugin)}" for plugin in plugins)], rows)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (f"  {line}" for line in Table(headers).render(rows).splitlines())


def _weight(found: Explanation, plugin: str) -> str:
    weight = found.weights[plugin]
    return "" if weight == 1 else f" x{weight:g}"


def _score(score: float) -> str:
    return f"{score:.1f}".removesuffix(".0")


def _nodes(number: int, kind: str = "") -> str:
    return f"{number} {kind + ' ' if kind else ''}{'node' if number == 1 else 'nodes'}"
