from pinnace.cluster.startup import Missing, unready


def test_nothing_is_missing_when_all_are_ready() -> None:
    assert unready([("a", ""), ("b", "")]) is None


def test_processes_with_the_same_problem_are_reported_together() -> None:
    reasons = [("a", ""), ("b", "no answer"), ("c", "cache: empty"), ("d", "no answer")]
    assert unready(reasons) == Missing("b, d (no answer); c (cache: empty)", "b")
