from pinnace.runtime.backoff import KeyedBackoff


def test_each_key_has_its_own_backoff_until_it_is_forgotten() -> None:
    pauses = KeyedBackoff(1.0, 4.0)
    assert 0.5 <= pauses.next_delay("a") <= 1.0 <= pauses.next_delay("a") <= 2.0 <= pauses.next_delay("a") <= 4.0
    assert 2.0 <= pauses.next_delay("a") <= 4.0, "the maximum"
    assert 0.5 <= pauses.next_delay("b") <= 1.0
    pauses.forget("a")
    pauses.forget("never failed")
    assert 0.5 <= pauses.next_delay("a") <= 1.0
