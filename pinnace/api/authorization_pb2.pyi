from pinnace.api import rbac_v1_pb2 as _rbac_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SelfSubjectReviewRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UserInfo(_message.Message):
    __slots__ = ("username", "groups", "nodes", "uid", "extra")
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    username: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    uid: str
    extra: _containers.RepeatedCompositeFieldContainer[UserExtra]
    def __init__(self, username: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., uid: _Optional[str] = ..., extra: _Optional[_Iterable[_Union[UserExtra, _Mapping]]] = ...) -> None: ...

class UserExtra(_message.Message):
    __slots__ = ("key", "values")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    key: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class ResourceAttributes(_message.Message):
    __slots__ = ("namespace", "verb", "group", "resource", "subresource", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    verb: str
    group: str
    resource: str
    subresource: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., verb: _Optional[str] = ..., group: _Optional[str] = ..., resource: _Optional[str] = ..., subresource: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SelfSubjectAccessReviewRequest(_message.Message):
    __slots__ = ("attributes",)
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: ResourceAttributes
    def __init__(self, attributes: _Optional[_Union[ResourceAttributes, _Mapping]] = ...) -> None: ...

class SubjectAccessReviewRequest(_message.Message):
    __slots__ = ("user", "groups", "attributes")
    USER_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    user: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    attributes: ResourceAttributes
    def __init__(self, user: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., attributes: _Optional[_Union[ResourceAttributes, _Mapping]] = ...) -> None: ...

class AccessReview(_message.Message):
    __slots__ = ("allowed", "reason")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    reason: str
    def __init__(self, allowed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class TokenReviewRequest(_message.Message):
    __slots__ = ("token", "audiences")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AUDIENCES_FIELD_NUMBER: _ClassVar[int]
    token: str
    audiences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token: _Optional[str] = ..., audiences: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenReviewResponse(_message.Message):
    __slots__ = ("user", "error", "audiences")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AUDIENCES_FIELD_NUMBER: _ClassVar[int]
    user: UserInfo
    error: str
    audiences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, user: _Optional[_Union[UserInfo, _Mapping]] = ..., error: _Optional[str] = ..., audiences: _Optional[_Iterable[str]] = ...) -> None: ...

class SelfSubjectRulesReviewRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class RulesReview(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[_rbac_v1_pb2.PolicyRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[_rbac_v1_pb2.PolicyRule, _Mapping]]] = ...) -> None: ...
