"""Spoiled inputs, made from sound requests and from the corpus."""

import random
from collections.abc import Mapping, Sequence

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz import sound
from tests.fuzz.inputs import Input
from tests.fuzz.mutate import mutate
from tests.fuzz.perturb import perturb
from tests.fuzz.values import spoil_marks


class Offspring:
    def __init__(self, corpus: Sequence[Input]) -> None:
        """`corpus` may grow."""
        self.methods: Mapping[str, MethodDescriptor] = sound.methods()
        self._paths = sorted(self.methods)
        self._corpus = corpus

    def sound(self, rng: random.Random, path: str = "") -> Input:
        """Nothing wrong with it. Of the method, or of any."""
        method = self.methods[path or rng.choice(self._paths)]
        messages = sound.conversation(method, rng) if method.client_streaming else [sound.request(method, rng)]
        return Input(
            f"/{method.containing_service.full_name}/{method.name}", tuple(message.SerializeToString() for message in messages)
        )

    def spoiled(self, rng: random.Random) -> Input:
        """Field by field, or as bytes."""
        path, messages = self._parent(rng)
        spoil = self._perturbed if rng.random() < 0.65 else self._mutated
        changed = [spoil(path, message, rng) if len(messages) == 1 or rng.random() < 0.4 else message for message in messages]
        if self.methods[path].client_streaming:
            changed = _disordered(changed, rng)
        return Input(path, tuple(changed))

    def foreign(self, rng: random.Random) -> Input:
        """To a method for which it is not, or nothing at all."""
        other = rng.choice((rng.randbytes(rng.randrange(200)), *self._parent(rng).messages[:1], b""))
        return Input(rng.choice(self._paths), (other,))

    def _parent(self, rng: random.Random) -> Input:
        return rng.choice(self._corpus) if self._corpus and rng.random() < 0.6 else self.sound(rng)

    def _perturbed(self, path: str, encoded: bytes, rng: random.Random) -> bytes:
        message: Message = message_factory.GetMessageClass(self.methods[path].input_type)()
        try:
            message.ParseFromString(encoded)
        except DecodeError:
            return self._mutated(path, encoded, rng)
        perturb(message, rng)
        return spoil_marks(message.SerializeToString())

    def _mutated(self, path: str, encoded: bytes, rng: random.Random) -> bytes:
        return mutate(encoded, rng.choice(self._parent(rng).messages or (b"",)), rng)


def _disordered(messages: list[bytes], rng: random.Random) -> list[bytes]:
    """In an order that nobody expects, some of them often, some not at all."""
    match rng.randrange(5):
        case 0:
            rng.shuffle(messages)
        case 1:
            messages = rng.choices(messages, k=rng.choice((1, 5, 200))) if messages else []
        case 2:
            del messages[rng.randrange(len(messages) + 1) :]
    return messages
