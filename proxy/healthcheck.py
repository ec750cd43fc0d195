"""The health check node ports: HTTP servers that tell load balancers whether the node has local endpoints of a service.

Status 200 if there are local endpoints, otherwise 503, with kube-proxy's JSON body.

Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/healthcheck/service_health.go
"""

import asyncio
import logging
from collections.abc import Mapping

from aiohttp import web

from pinnace.proxy.limits import HEALTH_CHECK_CONNECTIONS
from pinnace.proxy.plan import HealthCheck, ServiceRules

log = logging.getLogger(__name__)


class HealthChecks:
    """The servers, by service."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._servers: dict[str, tuple[HealthCheck, asyncio.Server, web.AppRunner]] = {}
        self._counts: dict[str, int] = {}

    async def apply(self, changes: Mapping[str, ServiceRules]) -> None:
        for service, rules in changes.items():
            check, known = rules.health_check, self._servers.get(service)
            if known is not None and (check is None or check.port != known[0].port):
                await self._stop_server(service)
                known = None
            if check is None:
                self._counts.pop(service, None)
                continue
            self._counts[service] = check.local_endpoints
            if known is None:
                await self._start_server(service, check)

    async def close(self) -> None:
        for service in list(self._servers):
            await self._stop_server(service)

    async def _stop_server(self, service: str) -> None:
        _, server, runner = self._servers.pop(service)
        server.close()
        await runner.cleanup()

    async def _start_server(self, service: str, check: HealthCheck) -> None:
        async def answer(request: web.Request) -> web.Response:
            count = self._counts.get(service, 0)
            namespace, _, name = service.partition("/")
            body = {
                "service": {"namespace": namespace, "name": name},
                "localEndpoints": count,
                "serviceProxyHealthy": True,
            }
            return web.json_response(body, status=200 if count else 503)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        http = runner.server
        assert http is not None

        def connect() -> asyncio.BaseProtocol:
            connections = http.connections  # also those that are closing
            for oldest in connections[: max(0, len(connections) - HEALTH_CHECK_CONNECTIONS + 1)]:
                oldest.force_close()
            return http()

        try:
            server = await asyncio.get_running_loop().create_server(connect, self._host, check.port, reuse_port=True)
        except OSError as error:
            log.warning("cannot listen on health check node port %d of service %s: %s", check.port, service, error.strerror)
            await runner.cleanup()
            return
        self._servers[service] = check, server, runner
