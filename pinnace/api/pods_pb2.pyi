from pinnace.api import core_v1_pb2 as _core_v1_pb2
from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from pinnace.api import policy_v1_pb2 as _policy_v1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreatePodRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Pod
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class CreatePodBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Pod]
    options: _meta_v1_pb2.CreateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Pod, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.CreateOptions, _Mapping]] = ...) -> None: ...

class UpdatePodRequest(_message.Message):
    __slots__ = ("object", "options")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    object: _core_v1_pb2.Pod
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class UpdatePodBatchRequest(_message.Message):
    __slots__ = ("items", "options")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Pod]
    options: _meta_v1_pb2.UpdateOptions
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Pod, _Mapping]]] = ..., options: _Optional[_Union[_meta_v1_pb2.UpdateOptions, _Mapping]] = ...) -> None: ...

class PodWatchEvent(_message.Message):
    __slots__ = ("type", "object")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    type: _verbs_pb2.WatchEventType
    object: _core_v1_pb2.Pod
    def __init__(self, type: _Optional[_Union[_verbs_pb2.WatchEventType, str]] = ..., object: _Optional[_Union[_core_v1_pb2.Pod, _Mapping]] = ...) -> None: ...

class PodWatchResponse(_message.Message):
    __slots__ = ("events", "resourceVersion", "history")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCEVERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PodWatchEvent]
    resourceVersion: str
    history: bytes
    def __init__(self, events: _Optional[_Iterable[_Union[PodWatchEvent, _Mapping]]] = ..., resourceVersion: _Optional[str] = ..., history: _Optional[bytes] = ...) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("binding", "fence")
    BINDING_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    binding: _core_v1_pb2.Binding
    fence: Fence
    def __init__(self, binding: _Optional[_Union[_core_v1_pb2.Binding, _Mapping]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ...) -> None: ...

class BindBatchRequest(_message.Message):
    __slots__ = ("items", "fence")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_core_v1_pb2.Binding]
    fence: Fence
    def __init__(self, items: _Optional[_Iterable[_Union[_core_v1_pb2.Binding, _Mapping]]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("eviction",)
    EVICTION_FIELD_NUMBER: _ClassVar[int]
    eviction: _policy_v1_pb2.Eviction
    def __init__(self, eviction: _Optional[_Union[_policy_v1_pb2.Eviction, _Mapping]] = ...) -> None: ...

class EvictBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_policy_v1_pb2.Eviction]
    def __init__(self, items: _Optional[_Iterable[_Union[_policy_v1_pb2.Eviction, _Mapping]]] = ...) -> None: ...

class Fence(_message.Message):
    __slots__ = ("election", "token", "secret")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    election: str
    token: int
    secret: bytes
    def __init__(self, election: _Optional[str] = ..., token: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("namespace", "name", "options", "uid")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    options: LogOptions
    uid: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[LogOptions, _Mapping]] = ..., uid: _Optional[str] = ...) -> None: ...

class LogOptions(_message.Message):
    __slots__ = ("container", "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    SINCESECONDS_FIELD_NUMBER: _ClassVar[int]
    SINCETIME_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    TAILLINES_FIELD_NUMBER: _ClassVar[int]
    LIMITBYTES_FIELD_NUMBER: _ClassVar[int]
    container: str
    follow: bool
    previous: bool
    sinceSeconds: int
    sinceTime: _meta_v1_pb2.Time
    timestamps: bool
    tailLines: int
    limitBytes: int
    def __init__(self, container: _Optional[str] = ..., follow: _Optional[bool] = ..., previous: _Optional[bool] = ..., sinceSeconds: _Optional[int] = ..., sinceTime: _Optional[_Union[_meta_v1_pb2.Time, _Mapping]] = ..., timestamps: _Optional[bool] = ..., tailLines: _Optional[int] = ..., limitBytes: _Optional[int] = ...) -> None: ...

class LogsResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("start", "stdin", "closeStdin")
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    CLOSESTDIN_FIELD_NUMBER: _ClassVar[int]
    start: ExecStart
    stdin: bytes
    closeStdin: bool
    def __init__(self, start: _Optional[_Union[ExecStart, _Mapping]] = ..., stdin: _Optional[bytes] = ..., closeStdin: _Optional[bool] = ...) -> None: ...

class ExecStart(_message.Message):
    __slots__ = ("namespace", "name", "container", "command", "stdin", "uid", "check", "tty")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    container: str
    command: _containers.RepeatedScalarFieldContainer[str]
    stdin: bool
    uid: str
    check: bool
    tty: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., container: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., stdin: _Optional[bool] = ..., uid: _Optional[str] = ..., check: _Optional[bool] = ..., tty: _Optional[bool] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ("stdout", "stderr", "exit")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    stdout: bytes
    stderr: bytes
    exit: ExecExit
    def __init__(self, stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., exit: _Optional[_Union[ExecExit, _Mapping]] = ...) -> None: ...

class ExecExit(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: int
    def __init__(self, code: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("namespace", "name", "container", "stdout", "stderr", "uid", "check")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    container: str
    stdout: bool
    stderr: bool
    uid: str
    check: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., container: _Optional[str] = ..., stdout: _Optional[bool] = ..., stderr: _Optional[bool] = ..., uid: _Optional[str] = ..., check: _Optional[bool] = ...) -> None: ...

class PortForwardRequest(_message.Message):
    __slots__ = ("start", "data", "closeWrite")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSEWRITE_FIELD_NUMBER: _ClassVar[int]
    start: PortForwardStart
    data: bytes
    closeWrite: bool
    def __init__(self, start: _Optional[_Union[PortForwardStart, _Mapping]] = ..., data: _Optional[bytes] = ..., closeWrite: _Optional[bool] = ...) -> None: ...

class PortForwardStart(_message.Message):
    __slots__ = ("namespace", "name", "port", "uid")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    port: int
    uid: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., port: _Optional[int] = ..., uid: _Optional[str] = ...) -> None: ...

class PortForwardResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...
