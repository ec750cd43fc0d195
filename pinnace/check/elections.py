"""I4: one holder per token, and tokens strictly grow.

Replayed from the history of each election's key. The token is the key's create_revision: it belongs to one holder and one
session from the creation of the key to its deletion; the key is put again with the same content only (a leader that goes on
with another API server), always under the session's lease.
"""

from pinnace.check.facts import ElectionFacts
from pinnace.check.history import Stored
from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I4", "one holder per token; tokens strictly grow"


def examine(history: History, found: Findings) -> None:
    for name, versions in history.elections.items():
        held: Stored | None = None
        for stored in versions:
            if not stored.digest:
                continue
            found.examined += 1
            for problem in _problems(held, stored):
                found.violated(f'election "{name}": {problem}', revision=stored.revision, at=stored.at)
            held = stored


def _problems(held: Stored | None, stored: Stored) -> list[str]:
    """What is wrong with a version of the key. `held`: the version before, of the same leader or of an earlier one."""
    token, facts = stored.create_revision, stored.facts
    if not isinstance(facts, ElectionFacts):
        return ["the key holds no election"]
    problems = []
    if stored.lease != facts.session:
        problems.append(f"token {token}: the key is attached to lease {stored.lease:x}, the session is {facts.session:x}")
    if held is None or not isinstance(held.facts, ElectionFacts):
        return problems
    if token < held.create_revision:
        problems.append(f"token {token} of {facts.holder} comes after the later token {held.create_revision}")
    elif token == held.create_revision and facts != held.facts:
        problems.append(
            f"token {token} was that of {held.facts.holder} (session {held.facts.session:x}), "
            f"and is now that of {facts.holder} (session {facts.session:x})"
        )
    return problems
