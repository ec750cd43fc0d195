"""An operator that is written with kr8s: a ConfigMap with the label `mirror: all` is copied to every namespace.

python mirror.py
"""

import kr8s
from kr8s.objects import ConfigMap

LABEL = "mirror"


def copy(source: ConfigMap, namespace: str) -> None:
    """Create or update the copy in this namespace."""
    copied = ConfigMap(
        {
            "metadata": {"name": source.name, "namespace": namespace, "labels": {"mirrored-from": source.namespace}},
            "data": dict(source.data),
        }
    )
    if copied.exists():
        copied.patch({"data": dict(source.data)})
    else:
        copied.create()


def reconcile(source: ConfigMap) -> None:
    for namespace in kr8s.get("namespaces"):
        if namespace.name != source.namespace and namespace.status.phase == "Active":
            copy(source, namespace.name)


def run() -> None:
    """Reconcile each ConfigMap now, and when it changes."""
    for event, source in kr8s.watch("configmaps", namespace=kr8s.ALL, label_selector={LABEL: "all"}):
        if event in ("ADDED", "MODIFIED"):
            reconcile(source)


if __name__ == "__main__":
    run()
