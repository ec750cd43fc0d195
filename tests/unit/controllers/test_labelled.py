"""Objects by their labels, as they change."""

import random

from controllers.labelled import Labelled
from controllers.ownership import ownerless
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.selectors import parse_labels
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from tests.builders import make_pod
from tests.workloads import named


def test_after_any_changes_it_finds_what_a_look_at_every_object_finds() -> None:
    rng = random.Random(7)
    labelled, store = Labelled(ownerless), dict[str, Pod]()
    for _ in range(400):
        name, namespace = f"p{rng.randrange(6)}", rng.choice(["a", "b"])
        key, old = f"{namespace}/{name}", store.get(f"{namespace}/{name}")
        builder = make_pod(name, namespace)
        for label in rng.sample(["app", "tier", "zone"], rng.randrange(3)):
            builder.label(label, rng.choice("xy"))
        if rng.random() < 0.3:
            builder.owner("ReplicaSet", "web", "uid-web")
        if old is not None and rng.random() < 0.3:
            labelled.follow([Delta(DELETED, store.pop(key), old)])
        else:
            store[key] = builder.build()
            labelled.follow([Delta(ADDED if old is None else MODIFIED, store[key], old)])
        for text in ("", "app=x", "app=x,tier!=y", "!zone"):
            selector = parse_labels(text)
            expected = [
                pod
                for pod in store.values()
                if pod.metadata.namespace == "a" and ownerless(pod) and selector.matches(pod.metadata.labels)
            ]
            assert sorted(named(labelled.select("a", selector.matches))) == sorted(named(expected))
