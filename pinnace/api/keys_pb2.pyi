from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListKeysRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit", "revision", "keys_only", "leases")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    revision: int
    keys_only: bool
    leases: bool
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., revision: _Optional[int] = ..., keys_only: _Optional[bool] = ..., leases: _Optional[bool] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("revision", "items", "more")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    items: _containers.RepeatedCompositeFieldContainer[KeyVersion]
    more: bool
    def __init__(self, revision: _Optional[int] = ..., items: _Optional[_Iterable[_Union[KeyVersion, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class WatchKeysRequest(_message.Message):
    __slots__ = ("prefixes", "start_revision", "keys_only")
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    prefixes: _containers.RepeatedScalarFieldContainer[str]
    start_revision: int
    keys_only: bool
    def __init__(self, prefixes: _Optional[_Iterable[str]] = ..., start_revision: _Optional[int] = ..., keys_only: _Optional[bool] = ...) -> None: ...

class WatchKeysResponse(_message.Message):
    __slots__ = ("revision", "changes")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    changes: _containers.RepeatedCompositeFieldContainer[KeyVersion]
    def __init__(self, revision: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[KeyVersion, _Mapping]]] = ...) -> None: ...

class KeyVersion(_message.Message):
    __slots__ = ("key", "value", "create_revision", "mod_revision", "version", "lease", "lease_age_seconds", "deleted", "size")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CREATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEASE_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int
    lease_age_seconds: float
    deleted: bool
    size: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., create_revision: _Optional[int] = ..., mod_revision: _Optional[int] = ..., version: _Optional[int] = ..., lease: _Optional[int] = ..., lease_age_seconds: _Optional[float] = ..., deleted: _Optional[bool] = ..., size: _Optional[int] = ...) -> None: ...
