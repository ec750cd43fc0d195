"""Any message of the API, for property tests: every field may be there, with any value that its type allows."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from pinnace.api.apiextensions_v1_pb2 import JSONSchemaProps
from pinnace.api.codec import INLINED, OWNERSHIP, map_value
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import FieldsV1, MicroTime, Time
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.runtime_v1_pb2 import RawExtension

LAST = 253_402_300_799
"""The last second of the year 9999."""

_TEXT = st.text(max_size=8)
_PRIMITIVES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=8),
}
_SECONDS = st.integers(0, LAST)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    Quantity.DESCRIPTOR.full_name: st.builds(Quantity, string=st.sampled_from(["1", "500m", "1.5Gi", "0", "1e3", "-2k"])),
    Time.DESCRIPTOR.full_name: st.builds(Time, seconds=_SECONDS),
    MicroTime.DESCRIPTOR.full_name: st.builds(
        MicroTime, seconds=_SECONDS, nanos=st.integers(0, 999_999).map(lambda micros: micros * 1000)
    ),
    IntOrString.DESCRIPTOR.full_name: st.one_of(
        st.builds(IntOrString, intVal=st.integers(-(2**31) + 1, 2**31 - 1)),
        st.builds(IntOrString, type=st.just(1), strVal=_TEXT),
    ),
    FieldsV1.DESCRIPTOR.full_name: st.builds(FieldsV1, Raw=st.sampled_from([b"{}", b'{"f:spec":{"f:replicas":{}}}'])),
    RawExtension.DESCRIPTOR.full_name: st.builds(RawExtension, raw=st.sampled_from([b"{}", b'{"a":1}'])),
    JSONSchemaProps.DESCRIPTOR.full_name: st.builds(JSONSchemaProps, raw=st.sampled_from([b"{}", b'{"type":"object"}'])),
}
MAX_FIELDS = 16
"""Fields that are set in all, at any depth."""


@st.composite
def messages(draw: st.DrawFn, message_type: type[Message]) -> Message:
    message = message_type()
    _Filler(draw).fill(message)
    return message


class _Filler:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._left = MAX_FIELDS

    def fill(self, message: Message) -> None:
        fields = [field for field in message.DESCRIPTOR.fields if field.full_name != OWNERSHIP]
        if not fields:
            return
        for field in self._draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda field: field.number)):
            if self._left > 0:
                self._left -= 1
                self._field(message, field)

    def _field(self, message: Message, field: FieldDescriptor) -> None:
        of = map_value(field)
        if of is not None:
            for key in self._draw(st.lists(_TEXT, max_size=2, unique=True)):
                self._put(getattr(message, field.name), of, key)
        elif field.is_repeated:
            for _ in range(self._draw(st.integers(0, 2))):
                self._add(getattr(message, field.name), field)
        elif field.message_type is None:
            setattr(message, field.name, self._draw(_PRIMITIVES[field.type]))
        else:
            child = getattr(message, field.name)
            self._set(child, field)
            if field.full_name in INLINED and not child.ListFields():
                message.ClearField(field.name)  # without content it has no form in JSON

    def _set(self, child: Message, field: FieldDescriptor) -> None:
        assert field.message_type is not None
        if field.message_type.full_name in _SCALARS:
            child.CopyFrom(self._draw(_SCALARS[field.message_type.full_name]))
        else:
            self.fill(child)
        child.SetInParent()

    def _add(self, target: Any, field: FieldDescriptor) -> None:
        if field.message_type is None:
            target.append(self._draw(_PRIMITIVES[field.type]))
        else:
            self._set(target.add(), field)

    def _put(self, target: Any, of: FieldDescriptor, key: str) -> None:
        if of.message_type is None:
            target[key] = self._draw(_PRIMITIVES[of.type])
        else:
            self._set(target[key], of)
