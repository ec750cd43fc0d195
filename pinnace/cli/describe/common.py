"""What the descriptions of all kinds share."""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.cli.describe.text import NONE, Rows, Value, instant, pairs
from pinnace.printers import cluster
from pinnace.printers.columns import is_set, since


def head(meta: ObjectMeta) -> dict[str, Value]:
    """What the description of any object may begin with."""
    return {
        "Name": meta.name,
        **({"Namespace": meta.namespace} if meta.namespace else {}),
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "CreationTimestamp": instant(meta.creationTimestamp) or NONE,
    }


def controlled_by(meta: ObjectMeta) -> dict[str, str]:
    """The line that says who keeps it, if anybody does."""
    owner = next((each for each in meta.ownerReferences if each.controller), None)
    return {"Controlled By": f"{owner.kind}/{owner.name}"} if owner else {}


def annotations(meta: ObjectMeta) -> list[str]:
    """`key: value`, without what `apply` keeps for itself."""
    shown = sorted((key, value) for key, value in meta.annotations.items() if key != LAST_APPLIED)
    return [f"{key}: {value}" for key, value in shown]


def finalizers(meta: ObjectMeta) -> str:
    """On one line: "[a b]"."""
    return f"[{' '.join(meta.finalizers)}]"


def phase(meta: ObjectMeta, word: str, now: float) -> str:
    """The word of the status, or for how long it has been going."""
    return f"Terminating (lasts {since(meta.deletionTimestamp, now)})" if is_set(meta.deletionTimestamp) else word


def events_table(events: Iterable[Event], now: float) -> Rows:
    """Oldest first."""
    rows = [
        (
            event.type,
            event.reason,
            cluster.occurrences(event, now),
            event.reportingComponent or event.source.component,
            event.message.strip(),
        )
        for event in sorted(events, key=cluster.when)
    ]
    return Rows(("Type", "Reason", "Age", "From", "Message"), rows)
