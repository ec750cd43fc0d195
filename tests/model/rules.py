"""What the model's actions are called and abstract, which faults there are, and which guards."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.model.checker import Step
from tests.model.protocol import State

NAMES = "AB"
Steps = Iterator[Step[State]]


class Fault(Enum):
    """What may befall the system, each time at the cost of one of `Bounds.faults`."""

    CRASH = "a candidate is killed, or resigns"
    RESTART = "an API server is killed, or rolled, and comes back"
    CUT = "a stream breaks"
    SLOW = "something takes longer than a deadline: a stop, a delay, packets that are swallowed"
    LOST = "an answer of etcd is lost"
    TRANSFER = "somebody asks for another leader (no fault, but it may come at any moment)"


class Guard(Enum):
    """What makes the protocol safe. Taking one away must show."""

    TOKEN_COMPARE = "no-token-compare", "a bind compares its token with the election's key"
    BARRIER = "no-barrier", "a new leader first learns everything up to its election"
    DEPOSE_COMPARE = "no-depose-compare", "a server deletes the key only at the mod_revision that it knows"
    TAKE_OVER = "no-take-over", "a server where a session goes on puts the key again, so that its mod_revision moves"
    RESUME_TOKEN = "no-resume-check", "a leader resumes only if the key still has its token"
    FINAL_LAPSE = "no-final-lapse", "a token that was given up is never used again"
    ADOPTION = "no-adoption", "a key that was created for one's own session by a server that is gone is taken over"
    ASSUME = "no-assume", "a decision counts until it is known what became of it"
    LEASE_ORDER = "no-validity", "a leader's clock stops it before its lease can have run out"
    POLITE_DRAIN = "delete-at-drain", "a server that stops leaves the keys alone"
    NO_REVOCATION = "revoke-in-doubt", "a server ends no session because it is in doubt itself: it may lead from another server"
    NOTICE = "no-notice", "a server notices that a stream has ended, or is silent"
    BEATEN = "server-renews", "a server renews a lease only because a beat has come"
    TRANSFER_TOKEN = "no-transfer-compare", "a transfer deposes the term that it was asked about, and no other"

    def __init__(self, breaking: str, statement: str) -> None:
        self.breaking = breaking
        self.statement = statement


class Action(NamedTuple):
    """`text` for a trace, with the step's subjects; `code`: what it abstracts."""

    text: str
    code: str


_CAMPAIGN = "apiserver.election.candidates.Candidate."
_LEADERSHIP = "apiserver.election.candidates.LeaderKey."
_CANDIDATE = "pinnace.client.election.Candidate."
_DRAIN = "apiserver.election.service.ElectionsService.drain"
_TRANSACT = "apiserver.storage.interface.Storage.transact"
_TRANSFER = "apiserver.election.service.Transfer."
ACTIONS = {
    "connect": Action("{0} opens a stream to {1}, with session {2} and token {3}", _CANDIDATE + "_begin"),
    "hear-opened": Action("{0} hears that session {1} is open", _CANDIDATE + "_begin"),
    "hear-elected": Action("{0} hears that it is elected with token {1}", _CANDIDATE + "_win"),
    "hear-old": Action("{0} hears that it is elected with token {1}, which it has given up", _CANDIDATE + "_win"),
    "hear-lost": Action("{0} hears that its session is over", _CANDIDATE + "_handle"),
    "leave": Action("{0} leaves its stream to {1}", _CANDIDATE + "_beat"),
    "impatient": Action("{0} gets no answer from {1} for too long, and leaves", _CANDIDATE + "_beat"),
    "clock": Action("{0}'s clock: no answer for too long, token {1} is over", "pinnace.client.election.Term.valid"),
    "stand-down": Action("{0} notices, and stands down from token {1}", _CANDIDATE + "_lapse"),
    "crash": Action("{0} is killed", _CANDIDATE + "run"),
    "return": Action("{0} is started again", _CANDIDATE + "run"),
    "decide": Action("{0} decides, and sends a bind under token {1}", "scheduler.binding_cycle.Binder._send"),
    "bind": Action("etcd: the bind under token {0} commits at revision {1}", "apiserver.registry.fencing.Fences.term"),
    "fenced": Action("etcd: the bind under token {0} is refused", "apiserver.registry.fencing.Fences.term"),
    "read": Action("{0} hears {1}'s opening, and reads the key: {2}", _LEADERSHIP + "find"),
    "refuse": Action("{0} hears {1}'s opening, and finds the key not to be its: lost", _CAMPAIGN + "_open"),
    "never": Action("{1}'s opening never reaches {0}", "apiserver.services.sessions.SessionStream.listen"),
    "clear": Action("{0} hears {1}'s opening, and that it has forsaken the key", _LEADERSHIP + "delete_forsaken"),
    "cleared": Action("etcd: {0}'s delete of the key that {1} has forsaken commits", _LEADERSHIP + "_delete"),
    "open": Action("{0} opens session {2} for {1}", _CAMPAIGN + "_open_session"),
    "resume": Action("{0} resumes session {2} for {1}", _CAMPAIGN + "_open_session"),
    "too-late": Action("{0} cannot resume {1}'s session, its lease has run out: lost", _CAMPAIGN + "_open_session"),
    "taken": Action("etcd: {0}'s put of the key for {1} commits at revision {2}", _LEADERSHIP + "take_over"),
    "not-taken": Action("etcd: {0}'s put of the key for {1} fails: lost", _LEADERSHIP + "take_over"),
    "moved": Action("etcd: {0}'s put of the key for {1} fails, another was faster: again", _LEADERSHIP + "take_over"),
    "put-unknown": Action("{0} gets no answer to its put of the key for {1}, and ends the stream", _LEADERSHIP + "take_over"),
    "stand": Action("{0} sends the create of the key for {1}", _CAMPAIGN + "_stand"),
    "created": Action("etcd: {0}'s create for {1} commits at revision {2}", _LEADERSHIP + "create"),
    "beaten": Action("etcd: {0}'s create for {1} fails, the key exists", _LEADERSHIP + "create"),
    "no-lease": Action("etcd: {0}'s create for {1} fails, the lease has run out: lost", _LEADERSHIP + "create"),
    "create-unknown": Action("{0} gets no answer to its create for {1}", "apiserver.storage.committer.Committer._commit_group"),
    "found": Action("{0} finds that its create for {1} happened", "apiserver.storage.committer.TransactionPipeline._resolve"),
    "revoke": Action("{0} cannot find out, and revokes {1}'s lease: lost", _CAMPAIGN + "_stand"),
    "in-doubt": Action("{0} cannot find out, and lets {1} wait on", _CAMPAIGN + "_stand"),
    "adopt": Action("{0} sees for a while that the key is {1}'s session's, and puts it again", _CAMPAIGN + "_adopt"),
    "expired": Action("{0} finds that the lease of {1} has run out: lost", "apiserver.services.sessions.LeaseSession.keep"),
    "verdict": Action("{0} sees that the key is not {1}'s from here any more: lost", _CAMPAIGN + "_check"),
    "gone": Action("{0} hears that the stream of {1} has ended", "apiserver.services.sessions.SessionStream.receive"),
    "depose": Action("{0} hears that the stream of {1} has ended, and sends the delete of the key", _CAMPAIGN + "_react"),
    "abandon": Action("{0} hears no more of {1}, and etcd is away: leaves the key to its lease", _CAMPAIGN + "_abandon"),
    "silent": Action("{0} hears nothing from {1} for too long, and sends the delete of the key", _CAMPAIGN + "_react"),
    "deleted": Action("etcd: {0}'s delete commits: {1} is deposed", _LEADERSHIP + "_delete"),
    "spared": Action("etcd: {0}'s delete fails, the key has moved or gone ({1})", _LEADERSHIP + "_delete"),
    "restart": Action("{0} is killed and comes back, knowing nothing", _DRAIN),
    "drain": Action("{0} stops, deletes the keys of its leaders, and comes back", _DRAIN),
    "cut": Action("the stream between {0} and {1} breaks", "apiserver.services.sessions.SessionStream.listen"),
    "late": Action("etcd: a {0} for {1} commits, which nobody waits for any more", _TRANSACT),
    "late-refused": Action("etcd: a {0} for {1} fails, which nobody waits for any more", _TRANSACT),
    "nominate": Action("somebody asks for a transfer from {0}, token {1}", _TRANSFER + "run"),
    "accept": Action("{0} accepts for {1}, which waits", _CAMPAIGN + "_consider"),
    "transfer": Action("etcd: the delete for the transfer to {0} commits: {1} is deposed", _TRANSFER + "_depose"),
    "expire": Action("etcd: lease {0} runs out", "apiserver.storage.interface.Storage.grant_lease"),
    "expire-slow": Action("etcd: lease {0} runs out, its renewal is late", "apiserver.services.sessions.LeaseSession.keep"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in one run of the checker."""

    guards: frozenset[Guard]
    faults: frozenset[Fault]
    servers: int

    def after(self, fault: Fault, state: State) -> State | None:
        """The state in which one fault more has happened; None: this one may not."""
        return state._replace(faults=state.faults - 1) if state.faults and fault in self.faults else None


def server(number: int) -> str:
    return f"server {number + 1}"
