"""What the tables of volumes and claims share."""

from collections.abc import Iterable, Mapping

from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.printers.ages import is_set

UNSET = "<unset>"
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes(modes: Iterable[str]) -> str:
    """ "RWO,ROX", in kubectl's order."""
    given = set(modes)
    return ",".join(short for mode, short in _SHORT.items() if mode in given)


def size(amounts: Mapping[str, Quantity]) -> str:
    """Of storage; empty when it is not known."""
    return amounts["storage"].string if "storage" in amounts else ""


def phase(metadata: ObjectMeta, word: str) -> str:
    return "Terminating" if is_set(metadata.deletionTimestamp) else word
