"""Services and slices for tests of the proxy."""

from typing import Any

from google.protobuf.json_format import ParseDict

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice


def make_service(name: str = "web", **spec: Any) -> Service:
    made = Service()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
    made.metadata.resourceVersion = "1"
    ParseDict({"clusterIP": "127.250.0.1", "type": "ClusterIP", "ports": [{"port": 80}], **spec}, made.spec)
    return made


def make_slice(
    *endpoints: dict[str, Any], service: str = "web", name: str = "web-1", port: int = 8080, **other: Any
) -> EndpointSlice:
    """Each endpoint is the JSON of an Endpoint with "ip" and optional "ready", "serving" and "terminating"."""
    made = EndpointSlice(addressType="IPv4")
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
    made.metadata.labels["kubernetes.io/service-name"] = service
    listed = []
    for endpoint in endpoints:
        conditions = {key: endpoint[key] for key in ("ready", "serving", "terminating") if key in endpoint}
        rest = {key: value for key, value in endpoint.items() if key not in ("ip", *conditions)}
        listed.append({"addresses": [endpoint["ip"]], "conditions": conditions, **rest})
    ParseDict({"endpoints": listed, "ports": [{"port": port, "protocol": "TCP"}], **other}, made)
    return made
