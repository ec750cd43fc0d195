from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListTableRequest(_message.Message):
    __slots__ = ("resource", "namespace", "options", "includeObject")
    class IncludeObject(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[ListTableRequest.IncludeObject]
        METADATA: _ClassVar[ListTableRequest.IncludeObject]
    NONE: ListTableRequest.IncludeObject
    METADATA: ListTableRequest.IncludeObject
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    INCLUDEOBJECT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    namespace: str
    options: _meta_v1_pb2.ListOptions
    includeObject: ListTableRequest.IncludeObject
    def __init__(self, resource: _Optional[str] = ..., namespace: _Optional[str] = ..., options: _Optional[_Union[_meta_v1_pb2.ListOptions, _Mapping]] = ..., includeObject: _Optional[_Union[ListTableRequest.IncludeObject, str]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("metadata", "columnDefinitions", "rows")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COLUMNDEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    columnDefinitions: _containers.RepeatedCompositeFieldContainer[TableColumnDefinition]
    rows: _containers.RepeatedCompositeFieldContainer[TableRow]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., columnDefinitions: _Optional[_Iterable[_Union[TableColumnDefinition, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[TableRow, _Mapping]]] = ...) -> None: ...

class TableColumnDefinition(_message.Message):
    __slots__ = ("name", "type", "format", "priority")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    format: str
    priority: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., format: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class TableRow(_message.Message):
    __slots__ = ("cells", "object")
    CELLS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedScalarFieldContainer[str]
    object: _meta_v1_pb2.ObjectMeta
    def __init__(self, cells: _Optional[_Iterable[str]] = ..., object: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ...) -> None: ...
