"""The actions of the model with the code that they abstract, the faults, and the guards."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.model.checker import Step
from tests.model.protocol import State

NAMES = "AB"
Steps = Iterator[Step[State]]


class Fault(Enum):
    """A fault. Each occurrence uses one of the `faults` of the bounds."""

    CRASH = "a candidate is killed or resigns"
    RESTART = "an API server is killed or stopped, and restarts"
    CUT = "a stream breaks"
    SLOW = "an operation exceeds its deadline: a stopped process, a delay, lost packets"
    LOST = "a response of etcd is lost"
    TRANSFER = "a client requests a transfer (no fault, but possible at any moment)"


class Guard(Enum):
    """The guards that make the protocol safe. The removal of a guard must lead to a counterexample."""

    TOKEN_COMPARE = "no-token-compare", "a bind compares its token with the election's key"
    BARRIER = "no-barrier", "a new leader waits until its informers have reached its election"
    DEPOSE_COMPARE = "no-depose-compare", "a server deletes the key only at the known mod_revision"
    TAKE_OVER = "no-take-over", "a server that resumes a session puts the key again, which changes its mod_revision"
    RESUME_TOKEN = "no-resume-check", "a leader resumes only if the key still has its token"
    FINAL_LAPSE = "no-final-lapse", "a candidate never uses a token again after it stood down"
    ADOPTION = "no-adoption", "a session takes over a key that a previous server created for it"
    ASSUME = "no-assume", "a pod stays assumed until the outcome of its bind is known"
    LEASE_ORDER = "no-validity", "a term ends by the leader's clock before its lease can expire"
    POLITE_DRAIN = "delete-at-drain", "a stopping server does not delete keys"
    NO_REVOCATION = "revoke-in-doubt", "a server does not end a session after an unknown outcome: it may lead on another server"
    NOTICE = "no-notice", "a server detects streams that have ended or are silent"
    BEATEN = "server-renews", "a server renews a lease only after a heartbeat"
    TRANSFER_TOKEN = "no-transfer-compare", "a transfer ends only the term of the request"

    def __init__(self, breaking: str, statement: str) -> None:
        self.breaking = breaking
        self.statement = statement


class Action(NamedTuple):
    """`text` describes the step and its subjects in a trace. `code` is the code that the action abstracts."""

    text: str
    code: str


_CAMPAIGN = "pinnace.apiserver.election.campaign.CampaignSession."
_LEADER_KEY = "pinnace.apiserver.election.leader_key.LeaderKey."
_ELECTOR = "pinnace.client.election.LeaderElector."
_SESSIONS = "pinnace.apiserver.services.sessions."
_COMMITTER = "pinnace.apiserver.storage.committer."
_DRAIN = "pinnace.apiserver.election.service.ElectionsService.drain"
_TRANSACT = "pinnace.apiserver.storage.interface.Storage.transact"
_TRANSFER = "pinnace.apiserver.election.service.LeadershipTransfer."
ACTIONS = {
    "connect": Action("{0} opens a stream to {1}, with session {2} and token {3}", _ELECTOR + "_open_session"),
    "hear-opened": Action("{0} learns that session {1} is open", _ELECTOR + "_open_session"),
    "hear-elected": Action("{0} learns that it is elected with token {1}", _ELECTOR + "_acquire"),
    "hear-old": Action("{0} learns that it is elected with token {1}, which it has given up", _ELECTOR + "_acquire"),
    "hear-lost": Action("{0} learns that its session has ended", _ELECTOR + "_handle_response"),
    "leave": Action("{0} leaves its stream to {1}", _ELECTOR + "_renew"),
    "impatient": Action("{0} receives no response from {1} in time and leaves", _ELECTOR + "_renew"),
    "clock": Action("{0}'s clock: no response in time, token {1} is invalid", "pinnace.client.election.LocalTerm.is_valid"),
    "stand-down": Action("{0} stands down from token {1}", _ELECTOR + "_end_lost_term"),
    "crash": Action("{0} is killed", _ELECTOR + "run"),
    "return": Action("{0} restarts", _ELECTOR + "run"),
    "decide": Action("{0} schedules a pod and sends a bind with token {1}", "pinnace.scheduler.binding_cycle.Binder._send"),
    "bind": Action(
        "etcd: the bind with token {0} commits at revision {1}", "pinnace.apiserver.registry.fencing.FenceVerifier.verify"
    ),
    "fenced": Action("etcd: the bind with token {0} fails", "pinnace.apiserver.registry.fencing.FenceVerifier.verify"),
    "read": Action("{0} receives the Open message of {1} and reads the key: {2}", _LEADER_KEY + "read_session_key"),
    "refuse": Action(
        "{0} receives the Open message of {1}, whose token is not that of the key: lost",
        _CAMPAIGN + "_open_campaign",
    ),
    "never": Action("the Open message of {1} never arrives at {0}", _SESSIONS + "SessionStream.receive_requests"),
    "clear": Action("{0} receives the Open message of {1}, which has forsaken the key", _LEADER_KEY + "delete_abandoned"),
    "cleared": Action("etcd: {0}'s delete of the key that {1} has forsaken commits", _LEADER_KEY + "_delete_key"),
    "open": Action("{0} opens session {2} for {1}", _CAMPAIGN + "_open_session"),
    "resume": Action("{0} resumes session {2} for {1}", _CAMPAIGN + "_open_session"),
    "too-late": Action("{0} cannot resume {1}'s session, its lease has expired: lost", _CAMPAIGN + "_open_session"),
    "taken": Action("etcd: {0}'s put of the key for {1} commits at revision {2}", _LEADER_KEY + "take_over_key"),
    "not-taken": Action("etcd: {0}'s put of the key for {1} fails: lost", _LEADER_KEY + "take_over_key"),
    "moved": Action(
        "etcd: {0}'s put of the key for {1} fails after a put of another server: retry",
        _LEADER_KEY + "take_over_key",
    ),
    "put-unknown": Action("{0} gets no reply to its put of the key for {1} and ends the stream", _LEADER_KEY + "take_over_key"),
    "stand": Action("{0} sends the create of the key for {1}", _CAMPAIGN + "_create_leader_key"),
    "created": Action("etcd: {0}'s create for {1} commits at revision {2}", _LEADER_KEY + "create_key"),
    "beaten": Action("etcd: {0}'s create for {1} fails, the key exists", _LEADER_KEY + "create_key"),
    "no-lease": Action("etcd: {0}'s create for {1} fails, the lease has expired: lost", _LEADER_KEY + "create_key"),
    "create-unknown": Action("{0} gets no reply to its create for {1}", _COMMITTER + "Committer._commit_group"),
    "found": Action("{0} finds that its create for {1} committed", _COMMITTER + "TransactionPipeline._resolve_outcome"),
    "revoke": Action("{0} does not know the outcome and revokes {1}'s lease: lost", _CAMPAIGN + "_create_leader_key"),
    "in-doubt": Action("{0} does not know the outcome and keeps {1} waiting", _CAMPAIGN + "_create_leader_key"),
    "adopt": Action("{0} sees that the key belongs to {1}'s session and puts it again", _CAMPAIGN + "_adopt_key"),
    "expired": Action("{0} finds that the lease of {1} has expired: lost", _SESSIONS + "LeaseSession.keep_alive"),
    "verdict": Action("{0} sees that the key no longer belongs to {1} on this stream: lost", _CAMPAIGN + "_verify_leadership"),
    "gone": Action("{0} detects the end of {1}'s stream", _SESSIONS + "SessionStream.receive"),
    "depose": Action("{0} detects the end of {1}'s stream and sends the delete of the key", _CAMPAIGN + "_handle_event"),
    "abandon": Action(
        "{0} hears nothing of {1} and cannot reach etcd: leaves the key to the lease",
        _CAMPAIGN + "_end_disconnected_term",
    ),
    "silent": Action("{0} receives no heartbeat of {1} in time and sends the delete of the key", _CAMPAIGN + "_handle_event"),
    "deleted": Action("etcd: {0}'s delete commits: {1} is deposed", _LEADER_KEY + "_delete_key"),
    "spared": Action("etcd: {0}'s delete fails, the key was changed or deleted ({1})", _LEADER_KEY + "_delete_key"),
    "restart": Action("{0} is killed and restarts without state", _DRAIN),
    "drain": Action("{0} stops, deletes the keys of its leaders, and restarts", _DRAIN),
    "cut": Action("the stream between {0} and {1} breaks", _SESSIONS + "SessionStream.receive_requests"),
    "late": Action("etcd: an abandoned {0} for {1} commits", _TRANSACT),
    "late-refused": Action("etcd: an abandoned {0} for {1} fails", _TRANSACT),
    "nominate": Action("a client requests a transfer from {0}, token {1}", _TRANSFER + "run"),
    "accept": Action("{0} accepts the transfer for waiting candidate {1}", _CAMPAIGN + "_accept_nomination_if_due"),
    "transfer": Action("etcd: the delete for the transfer to {0} commits: {1} is deposed", _TRANSFER + "_depose_leader"),
    "expire": Action("etcd: lease {0} expires", "pinnace.apiserver.storage.interface.Storage.grant_lease"),
    "expire-slow": Action("etcd: lease {0} expires, its renewal is late", _SESSIONS + "LeaseSession.keep_alive"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """The configuration of one run of the checker."""

    guards: frozenset[Guard]
    faults: frozenset[Fault]
    servers: int

    def after(self, fault: Fault, state: State) -> State | None:
        """Return the state after one more fault, or None if the fault is not permitted."""
        return state._replace(faults=state.faults - 1) if state.faults and fault in self.faults else None


def server(number: int) -> str:
    return f"server {number + 1}"
