"""The first test calls the operator as a function, the second one runs it as a program."""

import subprocess
import sys

import mirror
import pytest
from kr8s.objects import ConfigMap, Namespace


@pytest.fixture
def other_namespace(namespace):
    other = Namespace({"metadata": {"name": f"{namespace}-other"}})
    other.create()
    yield other.name
    other.delete()


@pytest.fixture
def operator(kubeconfig):  # KUBECONFIG is set
    with subprocess.Popen([sys.executable, mirror.__file__]) as process:
        yield
        process.terminate()


def create_config(namespace: str, name: str) -> ConfigMap:
    config = ConfigMap({"metadata": {"name": name, "namespace": namespace, "labels": {"mirror": "all"}}, "data": {"a": "1"}})
    config.create()
    return config


def test_reconcile_updates_copy(namespace, other_namespace):
    source = create_config(namespace, "settings")
    mirror.reconcile(source)
    source.patch({"data": {"a": "2"}})
    mirror.reconcile(source)
    assert ConfigMap.get("settings", namespace=other_namespace).data == {"a": "2"}


def test_running_operator_copies_new_config(operator, pinnace_cluster, namespace, other_namespace):
    create_config(namespace, "later")
    pinnace_cluster.wait(lambda: ConfigMap({"metadata": {"name": "later", "namespace": other_namespace}}).exists())
