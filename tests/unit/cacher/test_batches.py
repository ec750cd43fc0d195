from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pinnace.apiserver.cacher import reflector as module
from pinnace.apiserver.cacher.reflector import split_into_batches
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange


def change(revision: int, size: int = 0) -> KeyChange:
    return KeyChange("/registry/pods/default/a", b"x" * size, 1, revision)


def test_small_batch_is_left_as_it_is() -> None:
    told = ChangeBatch(9, [change(7), change(8)])
    assert list(split_into_batches(told, 6)) == [told]


def test_sign_of_life_moves_on() -> None:
    assert list(split_into_batches(ChangeBatch(9, ()), 6)) == [ChangeBatch(9, ())]


def test_repeats_are_left_out_and_nothing_goes_back() -> None:
    told = ChangeBatch(8, [change(6), change(7), change(8)])
    assert list(split_into_batches(told, 7)) == [ChangeBatch(8, [change(8)])]
    assert list(split_into_batches(told, 8)) == [ChangeBatch(8, [])]
    assert list(split_into_batches(told, 20)) == [ChangeBatch(20, [])]


def test_large_ones_are_cut_between_revisions() -> None:
    large = module.MAX_BYTES
    told = ChangeBatch(4, [change(1, large), change(1, 1), change(2, 1), change(3, large), change(4)])
    assert [[item.mod_revision for item in batch.changes] for batch in split_into_batches(told, 0)] == [[1, 1], [2, 3], [4]]
    assert [batch.revision for batch in split_into_batches(told, 0)] == [1, 3, 4]


@given(st.lists(st.integers(1, 400), max_size=12), st.integers(0, 12))
def test_cut_or_not_it_is_the_same(sizes: list[int], after: int) -> None:
    changes = [change(revision) for revision, size in enumerate(sizes, 1) for _ in range(size)]
    cut = list(split_into_batches(ChangeBatch(len(sizes), changes), after))
    assert [item for batch in cut for item in batch.changes] == [item for item in changes if item.mod_revision > after]
    assert cut[-1].revision == max(len(sizes), after)
    assert all(len(batch.changes) < module.MAX_CHANGES + 400 for batch in cut)
    for batch, following in pairwise(cut):
        assert batch.changes[-1].mod_revision == batch.revision < following.changes[0].mod_revision
        assert len(batch.changes) >= module.MAX_CHANGES
