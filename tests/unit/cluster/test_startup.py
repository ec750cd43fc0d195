from pinnace.cluster.startup import MissingCondition, missing_readiness


def test_ready_cluster_has_no_missing_process() -> None:
    assert missing_readiness([("a", ""), ("b", "")]) is None


def test_processes_with_the_same_problem_are_reported_together() -> None:
    reasons = [("a", ""), ("b", "no answer"), ("c", "cache: empty"), ("d", "no answer")]
    assert missing_readiness(reasons) == MissingCondition("b, d (no answer); c (cache: empty)", "b")
