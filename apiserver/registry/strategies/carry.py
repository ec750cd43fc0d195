"""Carrying over what an update may not change."""

from typing import Any


def carry_over(obj: Any, old: Any, *fields: str) -> None:
    """Makes these message fields of `obj` what they are in `old`: absent ones too, so that an update that changes nothing
    leaves nothing to write."""
    for field in fields:
        if old.HasField(field):
            getattr(obj, field).CopyFrom(getattr(old, field))
        else:
            obj.ClearField(field)
