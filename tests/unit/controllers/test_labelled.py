"""Indexes of objects by their labels and by their selectors."""

import random
import time

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import store_key
from pinnace.api.selectors import parse_labels
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.controllers.disruption import budget_selector
from pinnace.controllers.informers import LabelIndex, SelectorIndex
from pinnace.controllers.ownership import has_no_controller
from tests.builders import make_pod
from tests.workloads import named


def test_label_index_matches_a_full_scan() -> None:
    rng = random.Random(7)
    labelled, store = LabelIndex(has_no_controller), dict[str, Pod]()
    for _ in range(400):
        name, namespace = f"p{rng.randrange(6)}", rng.choice(["a", "b"])
        key, old = f"{namespace}/{name}", store.get(f"{namespace}/{name}")
        builder = make_pod(name, namespace)
        for label in rng.sample(["app", "tier", "zone"], rng.randrange(3)):
            builder.label(label, rng.choice("xy"))
        if rng.random() < 0.3:
            builder.owner("ReplicaSet", "web", "uid-web")
        if old is not None and rng.random() < 0.3:
            labelled.apply_deltas([Delta(DELETED, store.pop(key), old)])
        else:
            store[key] = builder.build()
            labelled.apply_deltas([Delta(ADDED if old is None else MODIFIED, store[key], old)])
        for text in ("", "app=x", "app=x,tier!=y", "!zone"):
            selector = parse_labels(text)
            expected = [
                pod
                for pod in store.values()
                if pod.metadata.namespace == "a" and has_no_controller(pod) and selector.matches(pod.metadata.labels)
            ]
            assert sorted(named(labelled.select("a", selector.matches))) == sorted(named(expected))


def budget(name: str, selector: LabelSelector | None, namespace: str = "a") -> PodDisruptionBudget:
    made = PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, namespace, f"{namespace}-{name}"
    if selector is not None:
        made.spec.selector.CopyFrom(selector)
    return made


def any_selector(rng: random.Random) -> LabelSelector | None:
    if rng.random() < 0.1:
        return None
    made = LabelSelector(matchLabels={key: rng.choice("xy") for key in rng.sample(["app", "tier", "zone"], rng.randrange(3))})
    for _ in range(rng.randrange(3)):
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Unknown"])
        values = rng.sample("xyz", rng.randrange(1, 3)) if operator.endswith("In") else []
        made.matchExpressions.add(key=rng.choice(["app", "tier", "zone"]), operator=operator, values=values)
    return made


def test_selector_index_matches_a_full_scan() -> None:
    rng = random.Random(11)
    selecting, store = SelectorIndex(budget_selector), dict[str, PodDisruptionBudget]()
    for _ in range(600):
        made = budget(f"b{rng.randrange(12)}", any_selector(rng), rng.choice("ab"))
        key = store_key(made)
        old = store.get(key)
        if old is not None and rng.random() < 0.3:
            selecting.apply_deltas([Delta(DELETED, store.pop(key), old)])
        else:
            store[key] = made
            selecting.apply_deltas([Delta(ADDED if old is None else MODIFIED, made, old)])
        labels = {key: rng.choice("xyz") for key in rng.sample(["app", "tier", "zone"], rng.randrange(4))}
        result = sorted(map(store_key, selecting.objects_selecting("a", labels)))
        assert result == sorted(
            key for key, each in store.items() if each.metadata.namespace == "a" and budget_selector(each).matches(labels)
        )


def test_lookup_is_fast_with_many_selectors() -> None:
    """Regression: with 20,000 services or budgets in one namespace, each change of a pod took 150 to 300 ms."""
    many = [LabelSelector(matchLabels={"app": "web", "n": f"v{number}"}) for number in range(20_000)]
    selecting = SelectorIndex(budget_selector, [budget(f"b{number}", each) for number, each in enumerate(many)])
    labels = {"app": "web", "n": "v7", "tier": "x"}
    began = time.process_time()
    for _ in range(20):
        assert [item.metadata.name for item in selecting.objects_selecting("a", labels)] == ["b7"]
    assert time.process_time() - began < 0.2
