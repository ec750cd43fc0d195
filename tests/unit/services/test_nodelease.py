"""The Lease object of a node, as it is read."""

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.wellknown import BIRTH_ANNOTATION
from pinnace.apiserver.services.nodes import LeaseSignature


@pytest.mark.parametrize(("text", "birth"), [("", 0), ("17", 17), ("-1", 0), ("soon", 0), ("9" * 5000, 0)])
def test_birth_that_is_no_number_is_none_of_ours(text: str, birth: int) -> None:
    """Else nobody could take up the node whose Lease object somebody has written."""
    lease = Lease()
    lease.metadata.annotations[BIRTH_ANNOTATION] = text
    assert LeaseSignature.of_lease(lease).birth == birth
