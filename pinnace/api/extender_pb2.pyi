from pinnace.api import core_v1_pb2 as _core_v1_pb2
from pinnace.api import pods_pb2 as _pods_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExtenderArgs(_message.Message):
    __slots__ = ("pod", "nodes", "nodeNames")
    POD_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODENAMES_FIELD_NUMBER: _ClassVar[int]
    pod: _core_v1_pb2.Pod
    nodes: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Node]
    nodeNames: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pod: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[_core_v1_pb2.Node, _Mapping]]] = ..., nodeNames: _Optional[_Iterable[str]] = ...) -> None: ...

class ExtenderFilterResult(_message.Message):
    __slots__ = ("nodeNames", "failedNodes", "failedAndUnresolvableNodes", "error")
    class FailedNodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FailedAndUnresolvableNodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODENAMES_FIELD_NUMBER: _ClassVar[int]
    FAILEDNODES_FIELD_NUMBER: _ClassVar[int]
    FAILEDANDUNRESOLVABLENODES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    nodeNames: _containers.RepeatedScalarFieldContainer[str]
    failedNodes: _containers.ScalarMap[str, str]
    failedAndUnresolvableNodes: _containers.ScalarMap[str, str]
    error: str
    def __init__(self, nodeNames: _Optional[_Iterable[str]] = ..., failedNodes: _Optional[_Mapping[str, str]] = ..., failedAndUnresolvableNodes: _Optional[_Mapping[str, str]] = ..., error: _Optional[str] = ...) -> None: ...

class HostPriority(_message.Message):
    __slots__ = ("host", "score")
    HOST_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    host: str
    score: int
    def __init__(self, host: _Optional[str] = ..., score: _Optional[int] = ...) -> None: ...

class HostPriorityList(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[HostPriority]
    def __init__(self, items: _Optional[_Iterable[_Union[HostPriority, _Mapping]]] = ...) -> None: ...

class ExtenderBindingArgs(_message.Message):
    __slots__ = ("binding", "fence")
    BINDING_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    binding: _core_v1_pb2.Binding
    fence: _pods_pb2.Fence
    def __init__(self, binding: _Optional[_Union[_core_v1_pb2.Binding, _Mapping]] = ..., fence: _Optional[_Union[_pods_pb2.Fence, _Mapping]] = ...) -> None: ...

class ExtenderBindingResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class ExtenderPreemptionArgs(_message.Message):
    __slots__ = ("pod", "nodeNameToVictims", "nodeNameToMetaVictims")
    class NodeNameToVictimsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Victims
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Victims, _Mapping]] = ...) -> None: ...
    class NodeNameToMetaVictimsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: MetaVictims
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[MetaVictims, _Mapping]] = ...) -> None: ...
    POD_FIELD_NUMBER: _ClassVar[int]
    NODENAMETOVICTIMS_FIELD_NUMBER: _ClassVar[int]
    NODENAMETOMETAVICTIMS_FIELD_NUMBER: _ClassVar[int]
    pod: _core_v1_pb2.Pod
    nodeNameToVictims: _containers.MessageMap[str, Victims]
    nodeNameToMetaVictims: _containers.MessageMap[str, MetaVictims]
    def __init__(self, pod: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., nodeNameToVictims: _Optional[_Mapping[str, Victims]] = ..., nodeNameToMetaVictims: _Optional[_Mapping[str, MetaVictims]] = ...) -> None: ...

class ExtenderPreemptionResult(_message.Message):
    __slots__ = ("nodeNameToMetaVictims",)
    class NodeNameToMetaVictimsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: MetaVictims
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[MetaVictims, _Mapping]] = ...) -> None: ...
    NODENAMETOMETAVICTIMS_FIELD_NUMBER: _ClassVar[int]
    nodeNameToMetaVictims: _containers.MessageMap[str, MetaVictims]
    def __init__(self, nodeNameToMetaVictims: _Optional[_Mapping[str, MetaVictims]] = ...) -> None: ...

class Victims(_message.Message):
    __slots__ = ("pods", "numPDBViolations")
    PODS_FIELD_NUMBER: _ClassVar[int]
    NUMPDBVIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Pod]
    numPDBViolations: int
    def __init__(self, pods: _Optional[_Iterable[_Union[_core_v1_pb2.Pod, _Mapping]]] = ..., numPDBViolations: _Optional[int] = ...) -> None: ...

class MetaVictims(_message.Message):
    __slots__ = ("pods", "numPDBViolations")
    PODS_FIELD_NUMBER: _ClassVar[int]
    NUMPDBVIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[MetaPod]
    numPDBViolations: int
    def __init__(self, pods: _Optional[_Iterable[_Union[MetaPod, _Mapping]]] = ..., numPDBViolations: _Optional[int] = ...) -> None: ...

class MetaPod(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: str
    def __init__(self, uid: _Optional[str] = ...) -> None: ...
