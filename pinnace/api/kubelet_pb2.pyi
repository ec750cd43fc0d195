from pinnace.api import metrics_v1beta1_pb2 as _metrics_v1beta1_pb2
from pinnace.api import pods_pb2 as _pods_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatsRequest(_message.Message):
    __slots__ = ("nodes", "pods")
    NODES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., pods: _Optional[_Iterable[str]] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("nodes", "pods")
    NODES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[_metrics_v1beta1_pb2.NodeMetrics]
    pods: _containers.RepeatedCompositeFieldContainer[_metrics_v1beta1_pb2.PodMetrics]
    def __init__(self, nodes: _Optional[_Iterable[_Union[_metrics_v1beta1_pb2.NodeMetrics, _Mapping]]] = ..., pods: _Optional[_Iterable[_Union[_metrics_v1beta1_pb2.PodMetrics, _Mapping]]] = ...) -> None: ...
