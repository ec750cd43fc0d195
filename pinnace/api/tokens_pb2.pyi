from pinnace.api import authentication_v1_pb2 as _authentication_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateTokenRequest(_message.Message):
    __slots__ = ("object", "namespace", "name")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    object: _authentication_v1_pb2.TokenRequest
    namespace: str
    name: str
    def __init__(self, object: _Optional[_Union[_authentication_v1_pb2.TokenRequest, _Mapping]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetIssuerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TokenIssuer(_message.Message):
    __slots__ = ("issuer", "keys", "algorithms", "keysURI")
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHMS_FIELD_NUMBER: _ClassVar[int]
    KEYSURI_FIELD_NUMBER: _ClassVar[int]
    issuer: str
    keys: bytes
    algorithms: _containers.RepeatedScalarFieldContainer[str]
    keysURI: str
    def __init__(self, issuer: _Optional[str] = ..., keys: _Optional[bytes] = ..., algorithms: _Optional[_Iterable[str]] = ..., keysURI: _Optional[str] = ...) -> None: ...
