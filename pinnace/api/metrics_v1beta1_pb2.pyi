import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import resource_v1_pb2 as _resource_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeMetrics(_message.Message):
    __slots__ = ("metadata", "timestamp", "window", "usage")
    class UsageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _resource_v1_pb2.Quantity
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_resource_v1_pb2.Quantity, _Mapping]] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ObjectMeta
    timestamp: _meta_v1_pb2.Time
    window: _duration_pb2.Duration
    usage: _containers.MessageMap[str, _resource_v1_pb2.Quantity]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., timestamp: _Optional[_Union[_meta_v1_pb2.Time, _Mapping]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., usage: _Optional[_Mapping[str, _resource_v1_pb2.Quantity]] = ...) -> None: ...

class NodeMetricsList(_message.Message):
    __slots__ = ("metadata", "items", "warnings")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    items: _containers.RepeatedCompositeFieldContainer[NodeMetrics]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[NodeMetrics, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class PodMetrics(_message.Message):
    __slots__ = ("metadata", "timestamp", "window", "containers")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ObjectMeta
    timestamp: _meta_v1_pb2.Time
    window: _duration_pb2.Duration
    containers: _containers.RepeatedCompositeFieldContainer[ContainerMetrics]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., timestamp: _Optional[_Union[_meta_v1_pb2.Time, _Mapping]] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., containers: _Optional[_Iterable[_Union[ContainerMetrics, _Mapping]]] = ...) -> None: ...

class ContainerMetrics(_message.Message):
    __slots__ = ("name", "usage")
    class UsageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _resource_v1_pb2.Quantity
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_resource_v1_pb2.Quantity, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    usage: _containers.MessageMap[str, _resource_v1_pb2.Quantity]
    def __init__(self, name: _Optional[str] = ..., usage: _Optional[_Mapping[str, _resource_v1_pb2.Quantity]] = ...) -> None: ...

class PodMetricsList(_message.Message):
    __slots__ = ("metadata", "items", "warnings")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    items: _containers.RepeatedCompositeFieldContainer[PodMetrics]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[PodMetrics, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
