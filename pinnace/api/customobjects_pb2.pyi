from pinnace.api import autoscaling_v1_pb2 as _autoscaling_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CustomObject(_message.Message):
    __slots__ = ("metadata", "apiVersion", "kind", "content")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    APIVERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ObjectMeta
    apiVersion: str
    kind: str
    content: bytes
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., apiVersion: _Optional[str] = ..., kind: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class CustomObjectList(_message.Message):
    __slots__ = ("metadata", "items")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    items: _containers.RepeatedCompositeFieldContainer[CustomObject]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[CustomObject, _Mapping]]] = ...) -> None: ...

class CreateCustomObjectRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: CustomObject
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, object: _Optional[_Union[CustomObject, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class CreateCustomObjectBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CustomObject]
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[CustomObject, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class UpdateCustomObjectRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: CustomObject
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[CustomObject, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class CustomObjectWatchEvent(_message.Message):
    __slots__ = ("type", "object")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: _verbs_pb2.WatchEventType
    object: CustomObject
    def __init__(self, type: _Optional[_Union[_verbs_pb2.WatchEventType, str]] = ..., object: _Optional[_Union[CustomObject, _Mapping]] = ...) -> None: ...

class CustomObjectWatchResponse(_message.Message):
    __slots__ = ("events", "resourceVersion", "history")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[CustomObjectWatchEvent]
    resourceVersion: str
    history: bytes
    def __init__(self, events: _Optional[_Iterable[_Union[CustomObjectWatchEvent, _Mapping]]] = ..., resourceVersion: _Optional[str] = ..., history: _Optional[bytes] = ...) -> None: ...
