"""The Service `kubernetes` in the namespace `default`, which leads to the gateways.

It has the first address of each network of cluster IPs. Each API server creates it, and creates it again after a deletion. The
gateways write its EndpointSlices (pinnace.gateway.endpoints).

Source: pkg/controlplane/controller/kubernetesservice of Kubernetes 1.36
"""

import logging
from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.resources import DEFAULT_NAMESPACE, SERVICES
from pinnace.api.status import Code, Refusal
from pinnace.api.wellknown import KUBERNETES_SERVICE
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheError
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.allocation import Network
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.storage.interface import StorageError
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between two checks, as in Kubernetes."""
DEFAULT_PORT, TARGET_PORT = 443, 6443
"""The port of the Service, and the usual port of gateways, which only displays use."""
_REQUEST = WriteRequest(SERVER)


def kubernetes_service(networks: Sequence[Network], port: int) -> Service:
    """Return the Service to create. `networks`: those of cluster IPs, the default family first."""
    service = Service()
    service.metadata.namespace, service.metadata.name = DEFAULT_NAMESPACE, KUBERNETES_SERVICE
    service.metadata.labels.update({"component": "apiserver", "provider": "kubernetes"})
    spec = service.spec
    spec.clusterIP = str(networks[0][1])
    spec.ipFamilyPolicy = "SingleStack"
    made = spec.ports.add(name="https", port=port, protocol="TCP")
    made.targetPort.intVal = TARGET_PORT
    spec.sessionAffinity, spec.type = "None", "ClusterIP"
    return service


class KubernetesServiceKeeper:
    """`store`: of services. Call `create_if_missing` when the cache is loaded, and keep `run` running."""

    def __init__(self, store: Store[Service], cacher: Cacher, networks: Sequence[Network], port: int, clock: Clock) -> None:
        self._store = store
        self._cache = cacher.cache_of(SERVICES)
        self._networks = networks
        self._port = port
        self._clock = clock
        self._problem = ""

    async def run(self) -> None:
        while True:
            await self.create_if_missing()
            await self._clock.sleep(INTERVAL)

    async def create_if_missing(self) -> None:
        """Create the Service if it is missing. A failure is logged: only clients in pods need the Service."""
        key = SERVICES.key(DEFAULT_NAMESPACE, KUBERNETES_SERVICE)
        if not self._cache.loaded or self._cache.get(key) is not None:
            return
        try:
            (outcome,) = await self._store.create([kubernetes_service(self._networks, self._port)], _REQUEST)
        except (CacheError, StorageError) as error:
            self._log_problem(str(error))
            return
        if isinstance(outcome, Refusal) and outcome.code is not Code.ALREADY_EXISTS:
            self._log_problem(outcome.message)

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("cannot create the service %s/%s: %s", DEFAULT_NAMESPACE, KUBERNETES_SERVICE, problem)
