import pytest

from pinnace.apiserver.storage.interface import Guard, GuardFailed, KeyValue, Write, WriteConflict, failure_of

FENCE = Guard("fence", 7)


def state(key: str, mod: int, create: int = 0) -> KeyValue:
    return KeyValue(key, b"x", create or mod, mod, 1)


class TestFailure:
    @pytest.mark.parametrize(("expected", "current"), [(0, None), (5, state("a", 5, 3))])
    def test_write_that_could_happen(self, expected: int, current: KeyValue | None) -> None:
        assert failure_of(Write("a", b"", expected), {"a": current}) is None

    @pytest.mark.parametrize(("expected", "current"), [(0, state("a", 5)), (5, None), (5, state("a", 6, 5))])
    def test_conflict_shows_what_is_there(self, expected: int, current: KeyValue | None) -> None:
        write = Write("a", b"", expected)
        failure = failure_of(write, {"a": current})
        assert isinstance(failure, WriteConflict)
        assert failure.write is write and failure.current is current

    @pytest.mark.parametrize("fence", [None, state("fence", 9, 8)])
    def test_lost_fence_comes_before_a_conflict(self, fence: KeyValue | None) -> None:
        failure = failure_of(Write("a", b"", 5, (FENCE,)), {"a": None, "fence": fence})
        assert isinstance(failure, GuardFailed)
        assert failure.guard is FENCE and failure.current is fence

    def test_fence_is_its_creation_not_its_last_write(self) -> None:
        assert failure_of(Write("a", b"", 0, (FENCE,)), {"a": None, "fence": state("fence", 9, 7)}) is None
