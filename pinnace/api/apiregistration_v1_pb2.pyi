from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class APIService(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ObjectMeta
    spec: APIServiceSpec
    status: APIServiceStatus
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., spec: _Optional[_Union[APIServiceSpec, _Mapping]] = ..., status: _Optional[_Union[APIServiceStatus, _Mapping]] = ...) -> None: ...

class APIServiceList(_message.Message):
    __slots__ = ("metadata", "items")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    items: _containers.RepeatedCompositeFieldContainer[APIService]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[APIService, _Mapping]]] = ...) -> None: ...

class APIServiceSpec(_message.Message):
    __slots__ = ("service", "group", "version", "insecureSkipTLSVerify", "caBundle", "groupPriorityMinimum", "versionPriority")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INSECURESKIPTLSVERIFY_FIELD_NUMBER: _ClassVar[int]
    CABUNDLE_FIELD_NUMBER: _ClassVar[int]
    GROUPPRIORITYMINIMUM_FIELD_NUMBER: _ClassVar[int]
    VERSIONPRIORITY_FIELD_NUMBER: _ClassVar[int]
    service: ServiceReference
    group: str
    version: str
    insecureSkipTLSVerify: bool
    caBundle: bytes
    groupPriorityMinimum: int
    versionPriority: int
    def __init__(self, service: _Optional[_Union[ServiceReference, _Mapping]] = ..., group: _Optional[str] = ..., version: _Optional[str] = ..., insecureSkipTLSVerify: _Optional[bool] = ..., caBundle: _Optional[bytes] = ..., groupPriorityMinimum: _Optional[int] = ..., versionPriority: _Optional[int] = ...) -> None: ...

class ServiceReference(_message.Message):
    __slots__ = ("namespace", "name", "port")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    port: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class APIServiceStatus(_message.Message):
    __slots__ = ("conditions",)
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    conditions: _containers.RepeatedCompositeFieldContainer[APIServiceCondition]
    def __init__(self, conditions: _Optional[_Iterable[_Union[APIServiceCondition, _Mapping]]] = ...) -> None: ...

class APIServiceCondition(_message.Message):
    __slots__ = ("type", "status", "lastTransitionTime", "reason", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LASTTRANSITIONTIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    lastTransitionTime: _meta_v1_pb2.Time
    reason: str
    message: str
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., lastTransitionTime: _Optional[_Union[_meta_v1_pb2.Time, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
