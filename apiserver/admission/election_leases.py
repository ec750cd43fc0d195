"""ElectionLeases: refuses writes of the Lease objects that show who leads an election (apiserver/services/leases.py).

Whatever was written there would decide nothing: the election's key does.
"""

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.resources import LEASES, SYSTEM_NAMESPACE
from pinnace.api.scalars import natural
from pinnace.api.wellknown import ELECTION_LEASES, FENCE_ANNOTATION

_RESERVED = {name: election for election, name in ELECTION_LEASES.items()}


class ElectionLeases:
    asked = tuple((operation, LEASES) for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE))

    def validate(self, request: Request, operation: Operation, obj: Lease | None, old: Lease | None) -> None:
        """Raises Rejected."""
        found = old if old is not None else obj
        if found is None or found.metadata.namespace != SYSTEM_NAMESPACE:
            return
        if election := _shown(found.metadata.name, old):
            what = f'leases.coordination.k8s.io "{found.metadata.name}" is forbidden: it shows who leads election "{election}"'
            way = f"`pinnace leader transfer {election}` makes another candidate lead"
            raise Rejected(errors.forbidden(f"{what}, and is read-only; {way}"))


def _shown(name: str, old: Lease | None) -> str:
    """The election that it shows; "": none."""
    election, _, token = old.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/") if old is not None else ("",) * 3
    return election if natural(token) is not None else _RESERVED.get(name, "")
