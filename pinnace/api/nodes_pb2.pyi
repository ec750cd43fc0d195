from pinnace.api import core_v1_pb2 as _core_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateNodeRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Node
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Node, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class CreateNodeBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Node]
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Node, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class UpdateNodeRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Node
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Node, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class UpdateNodeBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Node]
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Node, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class NodeWatchEvent(_message.Message):
    __slots__ = ("type", "object")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: _verbs_pb2.WatchEventType
    object: _core_v1_pb2.Node
    def __init__(self, type: _Optional[_Union[_verbs_pb2.WatchEventType, str]] = ..., object: _Optional[_Union[_core_v1_pb2.Node, _Mapping]] = ...) -> None: ...

class NodeWatchResponse(_message.Message):
    __slots__ = ("events", "resourceVersion", "history")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[NodeWatchEvent]
    resourceVersion: str
    history: bytes
    def __init__(self, events: _Optional[_Iterable[_Union[NodeWatchEvent, _Mapping]]] = ..., resourceVersion: _Optional[str] = ..., history: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("open", "add", "beat", "close", "release")
    class Open(_message.Message):
        __slots__ = ("holder", "nodes", "session", "birth")
        HOLDER_FIELD_NUMBER: _ClassVar[int]
        NODES_FIELD_NUMBER: _ClassVar[int]
        SESSION_FIELD_NUMBER: _ClassVar[int]
        BIRTH_FIELD_NUMBER: _ClassVar[int]
        holder: str
        nodes: _containers.RepeatedScalarFieldContainer[str]
        session: int
        birth: int
        def __init__(self, holder: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., session: _Optional[int] = ..., birth: _Optional[int] = ...) -> None: ...
    class Add(_message.Message):
        __slots__ = ("nodes",)
        NODES_FIELD_NUMBER: _ClassVar[int]
        nodes: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...
    class Release(_message.Message):
        __slots__ = ("nodes",)
        NODES_FIELD_NUMBER: _ClassVar[int]
        nodes: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...
    class Beat(_message.Message):
        __slots__ = ("sequence",)
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        def __init__(self, sequence: _Optional[int] = ...) -> None: ...
    class Close(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    open: HeartbeatRequest.Open
    add: HeartbeatRequest.Add
    beat: HeartbeatRequest.Beat
    close: HeartbeatRequest.Close
    release: HeartbeatRequest.Release
    def __init__(self, open: _Optional[_Union[HeartbeatRequest.Open, _Mapping]] = ..., add: _Optional[_Union[HeartbeatRequest.Add, _Mapping]] = ..., beat: _Optional[_Union[HeartbeatRequest.Beat, _Mapping]] = ..., close: _Optional[_Union[HeartbeatRequest.Close, _Mapping]] = ..., release: _Optional[_Union[HeartbeatRequest.Release, _Mapping]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("opened", "ack", "taken_over", "lost")
    class Opened(_message.Message):
        __slots__ = ("session", "interval_ms", "ttl_ms", "birth")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
        TTL_MS_FIELD_NUMBER: _ClassVar[int]
        BIRTH_FIELD_NUMBER: _ClassVar[int]
        session: int
        interval_ms: int
        ttl_ms: int
        birth: int
        def __init__(self, session: _Optional[int] = ..., interval_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., birth: _Optional[int] = ...) -> None: ...
    class Ack(_message.Message):
        __slots__ = ("sequence", "released")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        RELEASED_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        released: int
        def __init__(self, sequence: _Optional[int] = ..., released: _Optional[int] = ...) -> None: ...
    class TakenOver(_message.Message):
        __slots__ = ("nodes", "holder")
        NODES_FIELD_NUMBER: _ClassVar[int]
        HOLDER_FIELD_NUMBER: _ClassVar[int]
        nodes: _containers.RepeatedScalarFieldContainer[str]
        holder: str
        def __init__(self, nodes: _Optional[_Iterable[str]] = ..., holder: _Optional[str] = ...) -> None: ...
    class Lost(_message.Message):
        __slots__ = ("reason",)
        REASON_FIELD_NUMBER: _ClassVar[int]
        reason: str
        def __init__(self, reason: _Optional[str] = ...) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    TAKEN_OVER_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    opened: HeartbeatResponse.Opened
    ack: HeartbeatResponse.Ack
    taken_over: HeartbeatResponse.TakenOver
    lost: HeartbeatResponse.Lost
    def __init__(self, opened: _Optional[_Union[HeartbeatResponse.Opened, _Mapping]] = ..., ack: _Optional[_Union[HeartbeatResponse.Ack, _Mapping]] = ..., taken_over: _Optional[_Union[HeartbeatResponse.TakenOver, _Mapping]] = ..., lost: _Optional[_Union[HeartbeatResponse.Lost, _Mapping]] = ...) -> None: ...
