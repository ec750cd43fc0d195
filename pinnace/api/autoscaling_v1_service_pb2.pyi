from pinnace.api import autoscaling_v1_pb2 as _autoscaling_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateHorizontalPodAutoscalerRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _autoscaling_v1_pb2.HorizontalPodAutoscaler
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, object: _Optional[_Union[_autoscaling_v1_pb2.HorizontalPodAutoscaler, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class UpdateHorizontalPodAutoscalerRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _autoscaling_v1_pb2.HorizontalPodAutoscaler
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[_autoscaling_v1_pb2.HorizontalPodAutoscaler, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class HorizontalPodAutoscalerWatchEvent(_message.Message):
    __slots__ = ("type", "object")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: _verbs_pb2.WatchEventType
    object: _autoscaling_v1_pb2.HorizontalPodAutoscaler
    def __init__(self, type: _Optional[_Union[_verbs_pb2.WatchEventType, str]] = ..., object: _Optional[_Union[_autoscaling_v1_pb2.HorizontalPodAutoscaler, _Mapping]] = ...) -> None: ...

class HorizontalPodAutoscalerWatchResponse(_message.Message):
    __slots__ = ("events", "resourceVersion", "history")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[HorizontalPodAutoscalerWatchEvent]
    resourceVersion: str
    history: bytes
    def __init__(self, events: _Optional[_Iterable[_Union[HorizontalPodAutoscalerWatchEvent, _Mapping]]] = ..., resourceVersion: _Optional[str] = ..., history: _Optional[bytes] = ...) -> None: ...
