from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Election(_message.Message):
    __slots__ = ("name", "holder", "token", "since", "session", "candidates", "user", "secret_hash", "scheduler_names", "configuration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_HASH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_NAMES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    holder: str
    token: int
    since: _meta_v1_pb2.MicroTime
    session: int
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    user: str
    secret_hash: bytes
    scheduler_names: _containers.RepeatedScalarFieldContainer[str]
    configuration: str
    def __init__(self, name: _Optional[str] = ..., holder: _Optional[str] = ..., token: _Optional[int] = ..., since: _Optional[_Union[_meta_v1_pb2.MicroTime, _Mapping]] = ..., session: _Optional[int] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., user: _Optional[str] = ..., secret_hash: _Optional[bytes] = ..., scheduler_names: _Optional[_Iterable[str]] = ..., configuration: _Optional[str] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("election", "holder", "since", "session")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    election: str
    holder: str
    since: _meta_v1_pb2.MicroTime
    session: int
    def __init__(self, election: _Optional[str] = ..., holder: _Optional[str] = ..., since: _Optional[_Union[_meta_v1_pb2.MicroTime, _Mapping]] = ..., session: _Optional[int] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("election", "holder", "token", "began", "ended", "reason", "presumed", "last_heartbeat")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRESUMED_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    election: str
    holder: str
    token: int
    began: _meta_v1_pb2.MicroTime
    ended: _meta_v1_pb2.MicroTime
    reason: str
    presumed: bool
    last_heartbeat: _meta_v1_pb2.MicroTime
    def __init__(self, election: _Optional[str] = ..., holder: _Optional[str] = ..., token: _Optional[int] = ..., began: _Optional[_Union[_meta_v1_pb2.MicroTime, _Mapping]] = ..., ended: _Optional[_Union[_meta_v1_pb2.MicroTime, _Mapping]] = ..., reason: _Optional[str] = ..., presumed: _Optional[bool] = ..., last_heartbeat: _Optional[_Union[_meta_v1_pb2.MicroTime, _Mapping]] = ...) -> None: ...

class ElectionHistoryRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ElectionHistoryResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Term]
    def __init__(self, items: _Optional[_Iterable[_Union[Term, _Mapping]]] = ...) -> None: ...

class Nomination(_message.Message):
    __slots__ = ("election", "token", "holder", "session")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    election: str
    token: int
    holder: str
    session: int
    def __init__(self, election: _Optional[str] = ..., token: _Optional[int] = ..., holder: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class TransferElectionRequest(_message.Message):
    __slots__ = ("name", "to")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    name: str
    to: str
    def __init__(self, name: _Optional[str] = ..., to: _Optional[str] = ...) -> None: ...

class TransferElectionResponse(_message.Message):
    __slots__ = ("before", "after", "gap_micros")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    GAP_MICROS_FIELD_NUMBER: _ClassVar[int]
    before: Election
    after: Election
    gap_micros: int
    def __init__(self, before: _Optional[_Union[Election, _Mapping]] = ..., after: _Optional[_Union[Election, _Mapping]] = ..., gap_micros: _Optional[int] = ...) -> None: ...

class GetElectionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListElectionsRequest(_message.Message):
    __slots__ = ("history",)
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    history: bool
    def __init__(self, history: _Optional[bool] = ...) -> None: ...

class ListElectionsResponse(_message.Message):
    __slots__ = ("items", "states", "revision")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Election]
    states: _containers.RepeatedCompositeFieldContainer[ElectionState]
    revision: int
    def __init__(self, items: _Optional[_Iterable[_Union[Election, _Mapping]]] = ..., states: _Optional[_Iterable[_Union[ElectionState, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class WatchElectionsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ElectionState(_message.Message):
    __slots__ = ("election", "terms", "revision")
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    election: Election
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    revision: int
    def __init__(self, election: _Optional[_Union[Election, _Mapping]] = ..., terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class ElectionWatchResponse(_message.Message):
    __slots__ = ("events", "revision")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ElectionState]
    revision: int
    def __init__(self, events: _Optional[_Iterable[_Union[ElectionState, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class CampaignRequest(_message.Message):
    __slots__ = ("open", "heartbeat", "resign")
    class Open(_message.Message):
        __slots__ = ("election", "holder", "session", "token", "forsaken", "forsaken_ago_ms", "secret", "scheduler_names", "configuration")
        ELECTION_FIELD_NUMBER: _ClassVar[int]
        HOLDER_FIELD_NUMBER: _ClassVar[int]
        SESSION_FIELD_NUMBER: _ClassVar[int]
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        FORSAKEN_FIELD_NUMBER: _ClassVar[int]
        FORSAKEN_AGO_MS_FIELD_NUMBER: _ClassVar[int]
        SECRET_FIELD_NUMBER: _ClassVar[int]
        SCHEDULER_NAMES_FIELD_NUMBER: _ClassVar[int]
        CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
        election: str
        holder: str
        session: int
        token: int
        forsaken: int
        forsaken_ago_ms: int
        secret: bytes
        scheduler_names: _containers.RepeatedScalarFieldContainer[str]
        configuration: str
        def __init__(self, election: _Optional[str] = ..., holder: _Optional[str] = ..., session: _Optional[int] = ..., token: _Optional[int] = ..., forsaken: _Optional[int] = ..., forsaken_ago_ms: _Optional[int] = ..., secret: _Optional[bytes] = ..., scheduler_names: _Optional[_Iterable[str]] = ..., configuration: _Optional[str] = ...) -> None: ...
    class Heartbeat(_message.Message):
        __slots__ = ("sequence",)
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        def __init__(self, sequence: _Optional[int] = ...) -> None: ...
    class Resign(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESIGN_FIELD_NUMBER: _ClassVar[int]
    open: CampaignRequest.Open
    heartbeat: CampaignRequest.Heartbeat
    resign: CampaignRequest.Resign
    def __init__(self, open: _Optional[_Union[CampaignRequest.Open, _Mapping]] = ..., heartbeat: _Optional[_Union[CampaignRequest.Heartbeat, _Mapping]] = ..., resign: _Optional[_Union[CampaignRequest.Resign, _Mapping]] = ...) -> None: ...

class CampaignResponse(_message.Message):
    __slots__ = ("opened", "heartbeat", "elected", "observed", "lost", "resigned")
    class Opened(_message.Message):
        __slots__ = ("session", "interval_ms", "validity_ms", "secret_fences")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
        VALIDITY_MS_FIELD_NUMBER: _ClassVar[int]
        SECRET_FENCES_FIELD_NUMBER: _ClassVar[int]
        session: int
        interval_ms: int
        validity_ms: int
        secret_fences: bool
        def __init__(self, session: _Optional[int] = ..., interval_ms: _Optional[int] = ..., validity_ms: _Optional[int] = ..., secret_fences: _Optional[bool] = ...) -> None: ...
    class HeartbeatAck(_message.Message):
        __slots__ = ("sequence",)
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        def __init__(self, sequence: _Optional[int] = ...) -> None: ...
    class Elected(_message.Message):
        __slots__ = ("token",)
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        token: int
        def __init__(self, token: _Optional[int] = ...) -> None: ...
    class Observed(_message.Message):
        __slots__ = ("holder", "token")
        HOLDER_FIELD_NUMBER: _ClassVar[int]
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        holder: str
        token: int
        def __init__(self, holder: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...
    class Lost(_message.Message):
        __slots__ = ("reason",)
        REASON_FIELD_NUMBER: _ClassVar[int]
        reason: str
        def __init__(self, reason: _Optional[str] = ...) -> None: ...
    class Resigned(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ELECTED_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RESIGNED_FIELD_NUMBER: _ClassVar[int]
    opened: CampaignResponse.Opened
    heartbeat: CampaignResponse.HeartbeatAck
    elected: CampaignResponse.Elected
    observed: CampaignResponse.Observed
    lost: CampaignResponse.Lost
    resigned: CampaignResponse.Resigned
    def __init__(self, opened: _Optional[_Union[CampaignResponse.Opened, _Mapping]] = ..., heartbeat: _Optional[_Union[CampaignResponse.HeartbeatAck, _Mapping]] = ..., elected: _Optional[_Union[CampaignResponse.Elected, _Mapping]] = ..., observed: _Optional[_Union[CampaignResponse.Observed, _Mapping]] = ..., lost: _Optional[_Union[CampaignResponse.Lost, _Mapping]] = ..., resigned: _Optional[_Union[CampaignResponse.Resigned, _Mapping]] = ...) -> None: ...
