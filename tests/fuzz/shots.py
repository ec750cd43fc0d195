"""What is sent as number N of a seed: the same each time, as long as the corpus is the same."""

import random
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from pinnace.api import wire
from pinnace.apiserver.server import MAX_REQUEST
from pinnace.verification.chaos.hostile_pods import HOSTILE
from tests.fuzz.inputs import Input, hostile
from tests.fuzz.offspring import Offspring

MAX_PARENT = 64 << 10
"""Bytes of what others are made from: to spoil what has millions of parts takes seconds."""
PATIENCE = 10.0
"""Seconds that an honest caller waits: reads of a future revision are told after five that it has not been reached."""
Metadata = tuple[tuple[str, str | bytes], ...]


class Who(Enum):
    """Whose certificate is shown; a stranger has none, and comes by the door for tokens."""

    ADMIN = "admin"
    FLEET = "edge"
    NOBODY = "nobody"
    STRANGER = "stranger"


class How(Enum):
    CALL = auto()
    """As any client would."""
    ABANDON = auto()
    """A stream, broken off in the middle."""
    OWN_CHANNEL = auto()
    """Over a connection of its own, for what may cost the connection."""
    CROWD = auto()
    """The same stream, opened many times at once over one connection, which is then broken."""
    KNOCK = auto()
    """No gRPC at all: bytes to the port, and a connection that is left open."""


class Shot(NamedTuple):
    name: str
    """To find it again: SEED:NUMBER, or its place among those that are kept."""
    how: How
    who: Who
    what: Input
    deadline: float = PATIENCE
    metadata: Metadata = ()

    @property
    def size(self) -> int:
        return max((len(message) for message in self.what.messages), default=0)


class Shots:
    def __init__(self, seed: int, corpus: Sequence[Input]) -> None:
        """`corpus`: what is kept; inputs to methods that there are no more are left out."""
        self._seed = seed
        self._corpus = [item for item in corpus if item.path in Offspring(()).methods]
        self._offspring = Offspring([item for item in self._corpus if sum(map(len, item.messages)) <= MAX_PARENT])

    @property
    def replayed(self) -> Sequence[Shot]:
        """What is kept, as it is."""
        kept = enumerate(self._corpus)
        return [Shot(f"kept:{number}", How.CALL, Who.ADMIN, each) for number, each in kept]

    def shot(self, number: int) -> Shot:
        name = f"{self._seed}:{number}"
        rng = random.Random(name)
        who = rng.choices((Who.ADMIN, Who.FLEET, Who.NOBODY), (7, 2, 1))[0]
        make = rng.choices(list(_MAKERS), list(_MAKERS.values()))[0]
        return make(self._offspring, rng, Shot(name, How.CALL, who, Input("", ())))


def _spoiled(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    return shot._replace(what=offspring.spoiled(rng))


def _sound(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    """So that there is something to collide with."""
    return shot._replace(what=offspring.sound(rng))


def _foreign(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    return shot._replace(what=offspring.foreign(rng))


def _stream(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    paths = sorted(path for path, method in offspring.methods.items() if method.server_streaming)
    talks = sorted(path for path, method in offspring.methods.items() if method.client_streaming)
    what = offspring.sound(rng, rng.choice(rng.choice((paths, talks))))
    if what.path in talks:
        what = Input(what.path, what.messages[: rng.randrange(len(what.messages) + 1)])
    return shot._replace(how=How.ABANDON, what=what)


def _crowd(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    talks = sorted(path for path, method in offspring.methods.items() if method.client_streaming)
    return shot._replace(how=How.CROWD, who=Who.ADMIN, what=offspring.sound(rng, rng.choice(talks)))


def _large(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    """About as large as a message may be, or larger: one text, a great many small ones, or a field that nobody knows."""
    path, messages = offspring.sound(rng)
    size = rng.choice((MAX_REQUEST // 4, MAX_REQUEST // 4, MAX_REQUEST - (8 << 10), MAX_REQUEST + 1, 5 << 20))
    filling = rng.choice((
        wire.field(1, b"a" * size), wire.field(2, b"b" * size), wire.field(9001, b"c" * size),
        wire.field(1, b"") * (size // 2), wire.field(1, wire.field(1, wire.field(13, b"") * (size // 2))),
        wire.field(1, wire.field(1, wire.field(14, b"a/b") * (size // 5))),
    ))  # fmt: skip
    return shot._replace(what=Input(path, (messages[0] + filling,)))


def _hostile(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    """A pod that costs as much as a pod can; some have more items than an object may."""
    return shot._replace(what=hostile(rng.choice(sorted(HOSTILE)), rng.choice((900, 2_400, 4_900, 9_900, 20_000))))


def _hurried(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    return shot._replace(what=offspring.spoiled(rng), deadline=rng.choice((0.0, 0.001, 0.005, 0.05)))


def _headers(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    metadata: Metadata = rng.choice((
        (("x-large", "a" * rng.choice((1000, 7000, 20_000, 300_000))),),
        tuple((f"x-{number}", "a" * 20) for number in range(rng.choice((100, 3000)))),
        (("x-bytes-bin", rng.randbytes(50)), ("grpc-tags-bin", rng.randbytes(9)), ("grpc-trace-bin", b"")),
        (("authorization", "Bearer s3cret"), ("authorization", "Bearer other")),
        (("user-agent", "x"), ("te", "x"), ("content-type", "text/html")),
    ))  # fmt: skip
    return shot._replace(how=How.OWN_CHANNEL, what=offspring.sound(rng), metadata=metadata)


def _stranger(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    token = rng.choice(
        ("", "Bearer", "Bearer ", "Bearer guess", "bearer guess", "Basic czNjcmV0", "Bearer " + "a" * 5000, "s3cret", "~")
    )
    metadata: Metadata = rng.choice((((("authorization", token),)), ()))
    return shot._replace(how=How.OWN_CHANNEL, who=Who.STRANGER, what=offspring.sound(rng), metadata=metadata)


def _nowhere(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    path = rng.choice(
        ("/", "/pinnace.v1.Pods/", "/pinnace.v1.Pods/get", "/pinnace.v1.Pods/Get/", "/x.Y/Z", "/pinnace.v1.Pods/Create%20")
    )
    return shot._replace(what=Input(path, (rng.randbytes(9),)))


def _knock(offspring: Offspring, rng: random.Random, shot: Shot) -> Shot:
    hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + rng.randbytes(32)
    sent = rng.choice(
        (b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", hello, rng.randbytes(200))
    )
    return shot._replace(how=How.KNOCK, who=rng.choice((Who.STRANGER, Who.ADMIN)), what=Input("", (sent,)))


_MAKERS: Mapping[Callable[[Offspring, random.Random, Shot], Shot], int] = {
    _spoiled: 1400,
    _sound: 300,
    _foreign: 80,
    _stream: 200,
    _hurried: 40,
    _headers: 20,
    _stranger: 20,
    _nowhere: 10,
    _knock: 10,
    _large: 10,
    _hostile: 10,
    _crowd: 1,
}
"""How often, among each other."""
