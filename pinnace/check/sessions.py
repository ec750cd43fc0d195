"""I6: resourceVersion never goes back, per object and per client, whichever API servers it talks to.

Calls of one client: once a call has ended that told of revision R, a list that begins later is of R or later, and a get of an
object does not find an older version than one that the client has seen. Watch streams: what is told never goes back, not even
across reconnections to other servers or a new beginning. Needs no history of etcd; reads that asked for less than the latest
(`stale`) promise nothing and are left out.
"""

from collections import defaultdict

from pinnace.check.history import Call, Told
from pinnace.check.index import History
from pinnace.check.timeline import moments
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I6", "resourceVersion never goes back: per object, and per client across API servers"


def examine(history: History, found: Findings) -> None:
    by_client: defaultdict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.outcome == "ok" and not call.stale and call.of in (0, call.id):
            by_client[call.client].append(call)
    for calls in by_client.values():
        _examine_calls(calls, found)
    for words in history.streams.values():
        _examine_stream(words, found)


def _examine_calls(calls: list[Call], found: Findings) -> None:
    objects: dict[str, int] = {}  # key -> the latest revision of it that was seen
    latest = 0
    for began, _, call in moments(calls):
        if began:
            found.examined += 1
            if problem := _problem(call, latest, objects):
                text = f"{call.client}: {call.verb} #{call.id} from {call.server} {problem}"
                found.violated(text, revision=latest, at=call.began)
            continue
        latest = max(latest, call.snapshot)
        for item in call.items:
            if item.outcome == "ok" and item.revision > objects.get(item.key, 0):
                objects[item.key] = item.revision
                latest = max(latest, item.revision)


def _problem(call: Call, latest: int, objects: dict[str, int]) -> str:
    if call.verb == "list" and call.snapshot < latest:
        return f"shows revision {call.snapshot}, when the client had seen revision {latest}"
    if call.verb == "get":
        for item in call.items:
            if 0 < item.revision < (seen := objects.get(item.key, 0)):
                return f"found {item.key} at revision {item.revision}, when the client had seen it at {seen}"
    return ""


def _examine_stream(words: list[Told], found: Findings) -> None:
    latest, initial = 0, False
    for told in words:
        match told.kind:
            case "began":
                initial = told.revision == 0
            case "relisted":
                initial = True
            case "ended":
                pass
            case _ if not initial or told.kind in ("synced", "bookmark"):
                found.examined += 1
                initial = initial and told.kind != "synced"
                if told.revision < latest:
                    text = (
                        f"watch {told.stream} of {told.client}: {told.kind} {told.key} from {told.server} is of revision "
                        f"{told.revision}, when revision {latest} had been told"
                    )
                    found.violated(text, revision=told.revision, at=told.at)
                latest = max(latest, told.revision)
