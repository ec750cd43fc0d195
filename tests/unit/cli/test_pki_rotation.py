"""The wait of a rotation until API servers have read the new key."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs import pki

OLD, NEW = b"old", b"new"


def answer(monkeypatch: pytest.MonkeyPatch, answers: Sequence[dict[str, bytes]]) -> list[dict[str, bytes]]:
    """Have the API servers answer so, one answer after the other, and the last one again and again. Return those that are
    left."""
    left = list(answers)

    async def read(folder: Path) -> dict[str, bytes]:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(pki, "_read_token_keys", read)
    monkeypatch.setattr(pki, "RELOAD_POLL", 0.0)
    return left


async def test_rotation_waits_for_each_server_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server that has ended meanwhile reads the key when it starts."""
    left = answer(monkeypatch, [{"a": OLD, "b": OLD}, {"a": NEW, "b": OLD}, {"a": NEW}, {}])
    await pki._await_new_token_key(tmp_path, {"a": OLD, "b": OLD, "c": OLD})
    assert left == [{}]


async def test_server_that_does_not_read_the_key_fails_the_rotation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer(monkeypatch, [{"a": NEW, "b": OLD}])
    monkeypatch.setattr(pki, "RELOAD_TIMEOUT", 0.0)
    with pytest.raises(Failure, match="the API server b has not read the new key"):
        await pki._await_new_token_key(tmp_path, {"a": OLD, "b": OLD})
