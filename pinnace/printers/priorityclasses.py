"""Priority classes in a table."""

from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(priority_class: PriorityClass, now: float) -> tuple[str, ...]:
    return (
        priority_class.metadata.name,
        str(priority_class.value),
        "true" if priority_class.globalDefault else "false",
        since(priority_class.metadata.creationTimestamp, now),
        priority_class.preemptionPolicy or "PreemptLowerPriority",
    )


COLUMNS = Columns(headers=("NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"), wide=(), row=row)
