from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallBatch(_message.Message):
    __slots__ = ("calls", "cancelled")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., cancelled: _Optional[_Iterable[int]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "method", "metadata", "timeout_ms", "request", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    metadata: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    request: bytes
    more: bool
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., metadata: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ..., request: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class ResultBatch(_message.Message):
    __slots__ = ("results", "draining")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    draining: bool
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("id", "response", "more", "error", "warnings", "created", "request_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    response: bytes
    more: bool
    error: bytes
    warnings: _containers.RepeatedScalarFieldContainer[str]
    created: bool
    request_id: str
    def __init__(self, id: _Optional[int] = ..., response: _Optional[bytes] = ..., more: _Optional[bool] = ..., error: _Optional[bytes] = ..., warnings: _Optional[_Iterable[str]] = ..., created: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...
