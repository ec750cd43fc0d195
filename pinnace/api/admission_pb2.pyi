from google.rpc import status_pb2 as _status_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Operation]
    CREATE: _ClassVar[Operation]
    UPDATE: _ClassVar[Operation]
    DELETE: _ClassVar[Operation]
UNSPECIFIED: Operation
CREATE: Operation
UPDATE: Operation
DELETE: Operation

class ReviewRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AdmissionRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[AdmissionRequest, _Mapping]]] = ...) -> None: ...

class ReviewResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[AdmissionResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[AdmissionResponse, _Mapping]]] = ...) -> None: ...

class AdmissionRequest(_message.Message):
    __slots__ = ("uid", "apiVersion", "kind", "resource", "subResource", "operation", "namespace", "name", "username", "groups", "object", "oldObject", "dryRun")
    UID_FIELD_NUMBER: _ClassVar[int]
    APIVERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OLDOBJECT_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    uid: str
    apiVersion: str
    kind: str
    resource: str
    subResource: str
    operation: Operation
    namespace: str
    name: str
    username: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    object: bytes
    oldObject: bytes
    dryRun: bool
    def __init__(self, uid: _Optional[str] = ..., apiVersion: _Optional[str] = ..., kind: _Optional[str] = ..., resource: _Optional[str] = ..., subResource: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., username: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., object: _Optional[bytes] = ..., oldObject: _Optional[bytes] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class AdmissionResponse(_message.Message):
    __slots__ = ("uid", "allowed", "status", "patch", "patchType")
    UID_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    PATCHTYPE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    allowed: bool
    status: _status_pb2.Status
    patch: bytes
    patchType: _verbs_pb2.PatchRequest.Type
    def __init__(self, uid: _Optional[str] = ..., allowed: _Optional[bool] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., patch: _Optional[bytes] = ..., patchType: _Optional[_Union[_verbs_pb2.PatchRequest.Type, str]] = ...) -> None: ...
