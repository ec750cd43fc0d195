"""The environment variables of services."""

import asyncio
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod, Service
from pinnace.api.resources import SERVICES
from pinnace.client.client import Client
from pinnace.kubelet.service_variables import ServiceVariables, variables_of
from tests.builders import make_pod
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually
from tests.unit.client.fakeserver import connect


def service(name: str, namespace: str = "default", **spec: Any) -> Service:
    spec = {"ports": [{"port": 80}], **spec}
    return from_dict(Service, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def test_variables_of_a_service_match_kubernetes() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}]
    assert dict(variables_of(service("web-1", clusterIP="10.96.0.7", ports=ports))) == {
        "WEB_1_SERVICE_HOST": "10.96.0.7",
        "WEB_1_SERVICE_PORT": "80",
        "WEB_1_SERVICE_PORT_HTTP": "80",
        "WEB_1_SERVICE_PORT_DNS_UDP": "53",
        "WEB_1_PORT": "tcp://10.96.0.7:80",
        "WEB_1_PORT_80_TCP": "tcp://10.96.0.7:80",
        "WEB_1_PORT_80_TCP_PROTO": "tcp",
        "WEB_1_PORT_80_TCP_PORT": "80",
        "WEB_1_PORT_80_TCP_ADDR": "10.96.0.7",
        "WEB_1_PORT_53_UDP": "udp://10.96.0.7:53",
        "WEB_1_PORT_53_UDP_PROTO": "udp",
        "WEB_1_PORT_53_UDP_PORT": "53",
        "WEB_1_PORT_53_UDP_ADDR": "10.96.0.7",
    }


def test_url_of_an_ipv6_address_has_brackets() -> None:
    result = dict(variables_of(service("six", clusterIP="fd00::7")))
    assert (result["SIX_SERVICE_HOST"], result["SIX_PORT"]) == ("fd00::7", "tcp://[fd00::7]:80")


@pytest.mark.parametrize(
    "spec",
    [{"clusterIP": "None"}, {}, {"type": "ExternalName", "externalName": "a.example"}, {"clusterIP": "10.0.0.1", "ports": []}],
)
def test_service_without_an_address_has_no_variables(spec: dict[str, Any]) -> None:
    assert list(variables_of(service("s", **spec))) == []


def pod(namespace: str, links: bool | None = None) -> Pod:
    made = make_pod("a", namespace).build()
    if links is not None:
        made.spec.enableServiceLinks = links
    return made


async def test_pod_gets_the_services_of_its_namespace_and_the_service_kubernetes() -> None:
    async with serving(MemoryStorage()) as server:
        connection = connect(server)
        client = Client(connection).of(SERVICES)
        service_variables = ServiceVariables(client)
        assert not service_variables.synced and service_variables(pod("default")) == {}
        for item in (service("kubernetes"), service("web"), service("web", "kube-system"), service("db", "kube-system")):
            await client.create(item)
        following = asyncio.create_task(service_variables.run())
        try:
            await eventually(lambda: service_variables.synced)

            def hosts(pod: Pod) -> dict[str, str]:
                return {name: value for name, value in service_variables(pod).items() if name.endswith("_SERVICE_HOST")}

            own = {
                item.metadata.namespace + "/" + item.metadata.name: item.spec.clusterIP for item in (await client.list()).items
            }
            master = {"KUBERNETES_SERVICE_HOST": own["default/kubernetes"]}
            assert hosts(pod("default")) == {**master, "WEB_SERVICE_HOST": own["default/web"]}
            assert hosts(pod("kube-system", True)) == {
                **master, "DB_SERVICE_HOST": own["kube-system/db"], "WEB_SERVICE_HOST": own["kube-system/web"],
            }  # fmt: skip
            assert hosts(pod("kube-system", False)) == hosts(pod("elsewhere")) == master
            await client.delete("web", "default")
            await eventually(lambda: hosts(pod("default")) == master)
        finally:
            following.cancel()
            await connection.close()
