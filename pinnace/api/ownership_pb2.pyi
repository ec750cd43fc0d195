from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FieldOwners(_message.Message):
    __slots__ = ("owners",)
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedCompositeFieldContainer[FieldOwner]
    def __init__(self, owners: _Optional[_Iterable[_Union[FieldOwner, _Mapping]]] = ...) -> None: ...

class FieldOwner(_message.Message):
    __slots__ = ("manager", "applies", "apiVersion", "time", "subresource", "fields", "remaining", "assigned", "excluded", "base")
    MANAGER_FIELD_NUMBER: _ClassVar[int]
    APPLIES_FIELD_NUMBER: _ClassVar[int]
    APIVERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    manager: str
    applies: bool
    apiVersion: str
    time: int
    subresource: str
    fields: bytes
    remaining: bool
    assigned: int
    excluded: bytes
    base: bytes
    def __init__(self, manager: _Optional[str] = ..., applies: _Optional[bool] = ..., apiVersion: _Optional[str] = ..., time: _Optional[int] = ..., subresource: _Optional[str] = ..., fields: _Optional[bytes] = ..., remaining: _Optional[bool] = ..., assigned: _Optional[int] = ..., excluded: _Optional[bytes] = ..., base: _Optional[bytes] = ...) -> None: ...
