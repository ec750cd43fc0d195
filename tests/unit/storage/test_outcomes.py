import pytest

from apiserver.storage.interface import Guard, KeyValue, Write
from apiserver.storage.outcomes import Conflict, GuardFailed, failure_of, find_anchor, is_dead, is_trace_of

FENCE = Guard("fence", 7)


def state(key: str, mod: int, create: int = 0, value: bytes = b"x", lease: int = 0) -> KeyValue:
    return KeyValue(key, value, create or mod, mod, 1, lease)


class TestFailure:
    @pytest.mark.parametrize(("expected", "current"), [(0, None), (5, state("a", 5, 3))])
    def test_a_write_that_could_happen(self, expected: int, current: KeyValue | None) -> None:
        assert failure_of(Write("a", b"", expected), {"a": current}) is None

    @pytest.mark.parametrize(("expected", "current"), [(0, state("a", 5)), (5, None), (5, state("a", 6, 5))])
    def test_a_conflict_shows_what_is_there(self, expected: int, current: KeyValue | None) -> None:
        write = Write("a", b"", expected)
        failure = failure_of(write, {"a": current})
        assert isinstance(failure, Conflict)
        assert failure.write is write and failure.current is current

    @pytest.mark.parametrize("fence", [None, state("fence", 9, 8)])
    def test_a_lost_fence_comes_before_a_conflict(self, fence: KeyValue | None) -> None:
        failure = failure_of(Write("a", b"", 5, (FENCE,)), {"a": None, "fence": fence})
        assert isinstance(failure, GuardFailed)
        assert failure.guard is FENCE and failure.current is fence

    def test_a_fence_is_its_creation_not_its_last_write(self) -> None:
        assert failure_of(Write("a", b"", 0, (FENCE,)), {"a": None, "fence": state("fence", 9, 7)}) is None


class TestDead:
    create, update = Write("a", b"", 0), Write("b", b"", 5)

    def test_a_version_that_has_passed_does_not_come_back(self) -> None:
        assert is_dead([self.create, self.update], {"a": None, "b": state("b", 6)})
        assert is_dead([self.create, self.update], {"a": None, "b": None})

    def test_absence_may_come_back(self) -> None:
        assert not is_dead([self.create, self.update], {"a": state("a", 6), "b": state("b", 5)})

    def test_a_fence_does_not_come_back(self) -> None:
        assert is_dead([Write("a", b"", 0, (FENCE,))], {"a": None, "fence": None})


def test_the_anchor_is_no_create() -> None:
    assert find_anchor([Write("a", b"", 0), Write("b", None, 5)]) == Write("b", None, 5)
    assert find_anchor([Write("a", b"", 0)]) is None


class TestTrace:
    @pytest.mark.parametrize(
        ("write", "found"),
        [
            (Write("a", b"x", 0), state("a", 9)),
            (Write("a", b"x", 5), state("a", 9, 5)),
            (Write("a", b"x", 0, lease=3), state("a", 9, lease=3)),
            (Write("a", None, 5), None),
        ],
    )
    def test_what_it_leaves_behind(self, write: Write, found: KeyValue | None) -> None:
        assert is_trace_of(write, found, 9)

    @pytest.mark.parametrize(
        ("write", "found"),
        [
            (Write("a", b"x", 0), None),
            (Write("a", b"x", 0), state("a", 8)),
            (Write("a", b"x", 0), state("a", 9, 8)),
            (Write("a", b"x", 0), state("a", 9, value=b"y")),
            (Write("a", b"x", 0), state("a", 9, lease=3)),
            (Write("a", b"x", 5), state("a", 9)),
            (Write("a", None, 5), state("a", 9)),
        ],
    )
    def test_what_others_do(self, write: Write, found: KeyValue | None) -> None:
        assert not is_trace_of(write, found, 9)
