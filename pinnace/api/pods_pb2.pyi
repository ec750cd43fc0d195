from pinnace.api import core_v1_pb2 as _core_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import policy_v1_pb2 as _policy_v1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreatePodRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Pod
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class CreatePodBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Pod]
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Pod, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class UpdatePodRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Pod
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class UpdatePodBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Pod]
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Pod, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class PodWatchEvent(_message.Message):
    __slots__ = ("type", "object")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: _verbs_pb2.WatchEventType
    object: _core_v1_pb2.Pod
    def __init__(self, type: _Optional[_Union[_verbs_pb2.WatchEventType, str]] = ..., object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ...) -> None: ...

class PodWatchResponse(_message.Message):
    __slots__ = ("events", "resourceVersion")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PodWatchEvent]
    resourceVersion: str
    def __init__(self, events: _Optional[_Iterable[_Union[PodWatchEvent, _Mapping]]] = ..., resourceVersion: _Optional[str] = ...) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("binding", "fence")
    BINDING_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    binding: _core_v1_pb2.Binding
    fence: Fence
    def __init__(self, binding: _Optional[_Union[_core_v1_pb2.Binding, _Mapping]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ...) -> None: ...

class BindBatchRequest(_message.Message):
    __slots__ = ("items", "fence")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Binding]
    fence: Fence
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Binding, _Mapping]]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("eviction",)
    EVICTION_FIELD_NUMBER: _ClassVar[int]
    eviction: _policy_v1_pb2.Eviction
    def __init__(self, eviction: _Optional[_Union[_policy_v1_pb2.Eviction, _Mapping]] = ...) -> None: ...

class EvictBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_policy_v1_pb2.Eviction]
    def __init__(self, items: _Optional[_Iterable[_Union[_policy_v1_pb2.Eviction, _Mapping]]] = ...) -> None: ...

class Fence(_message.Message):
    __slots__ = ("election", "token")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    election: str
    token: int
    def __init__(self, election: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...
