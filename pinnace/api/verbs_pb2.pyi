from google.rpc import status_pb2 as _status_pb2
from pinnace.api import autoscaling_v1_pb2 as _autoscaling_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[WatchEventType]
    ADDED: _ClassVar[WatchEventType]
    MODIFIED: _ClassVar[WatchEventType]
    DELETED: _ClassVar[WatchEventType]
UNSPECIFIED: WatchEventType
ADDED: WatchEventType
MODIFIED: WatchEventType
DELETED: WatchEventType

class GetRequest(_message.Message):
    __slots__ = ("namespace", "name", "options")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    options: _meta_v1_pb2.GetOptions
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.GetOptions, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("namespace", "options")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    options: _meta_v1_pb2.ListOptions
    def __init__(self, namespace: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.ListOptions, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("namespace", "options", "announceElections", "known")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEELECTIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    options: _meta_v1_pb2.ListOptions
    announceElections: bool
    known: Known
    def __init__(self, namespace: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.ListOptions, _Mapping]] = ..., announceElections: _Optional[bool] = ..., known: _Optional[_Union[Known, _Mapping]] = ...) -> None: ...

class Known(_message.Message):
    __slots__ = ("resourceVersion", "history")
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    resourceVersion: str
    history: bytes
    def __init__(self, resourceVersion: _Optional[str] = ..., history: _Optional[bytes] = ...) -> None: ...

class PatchRequest(_message.Message):
    __slots__ = ("namespace", "name", "options", "type", "patch", "subresource")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[PatchRequest.Type]
        MERGE: _ClassVar[PatchRequest.Type]
        STRATEGIC_MERGE: _ClassVar[PatchRequest.Type]
        JSON: _ClassVar[PatchRequest.Type]
        APPLY: _ClassVar[PatchRequest.Type]
    UNSPECIFIED: PatchRequest.Type
    MERGE: PatchRequest.Type
    STRATEGIC_MERGE: PatchRequest.Type
    JSON: PatchRequest.Type
    APPLY: PatchRequest.Type
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    options: _meta_v1_pb2.PatchOptions
    type: PatchRequest.Type
    patch: bytes
    subresource: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.PatchOptions, _Mapping]] = ..., type: _Optional[_Union[PatchRequest.Type, str]] = ..., patch: _Optional[bytes] = ..., subresource: _Optional[str] = ...) -> None: ...

class UpdateScaleRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _autoscaling_v1_pb2.Scale
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[_autoscaling_v1_pb2.Scale, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("namespace", "name", "options", "disruption")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DISRUPTION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    options: _meta_v1_pb2.DeleteOptions
    disruption: Disruption
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.DeleteOptions, _Mapping]] = ..., disruption: _Optional[_Union[Disruption, _Mapping]] = ...) -> None: ...

class Disruption(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class DeleteBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[DeleteRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[DeleteRequest, _Mapping]]] = ...) -> None: ...

class DeleteCollectionRequest(_message.Message):
    __slots__ = ("namespace", "options", "deleteOptions")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DELETEOPTIONS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    options: _meta_v1_pb2.ListOptions
    deleteOptions: _meta_v1_pb2.DeleteOptions
    def __init__(self, namespace: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.ListOptions, _Mapping]] = ..., deleteOptions: _Optional[_Union[_meta_v1_pb2.DeleteOptions, _Mapping]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("error", "name", "uid", "resourceVersion")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    error: _status_pb2.Status
    name: str
    uid: str
    resourceVersion: str
    def __init__(self, error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., resourceVersion: _Optional[str] = ...) -> None: ...

class BatchResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    def __init__(self, items: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ..., **kwargs) -> None: ...
