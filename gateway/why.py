"""The `why` subresource of pods: the explanation of a pod's node, or of its pending state, as JSON.

A separate process repeats the scheduling decision with the permissions of the user, because the gateway does not contain the
scheduler's code. At most AT_ONCE processes run concurrently; further requests are rejected with 429.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from base64 import b64decode

from google.rpc.status_pb2 import Status

from pinnace.api.records import Answer, Malformed, PreemptionProblem, from_json, to_json
from pinnace.client.config import ClientConfig
from pinnace.client.errors import from_status
from pinnace.gateway.errors import RETRY_AFTER, convert_error
from pinnace.gateway.http import ApiStatus, Request, Response, User
from pinnace.gateway.media_types import negotiate
from pinnace.gateway.objects import respond_document
from pinnace.gateway.routes import Route

AT_ONCE = 2
"""The maximum number of concurrent explanations. Each uses seconds of CPU time in a large cluster."""
EXPLAIN_TIMEOUT = 25.0
"""The timeout of the lists of an explanation in seconds."""


class ExplainHandler:
    def __init__(self, servers: ClientConfig) -> None:
        """`servers`: the API servers, with the gateway's certificate."""
        self._servers = servers
        self._running = 0

    async def get(self, request: Request, route: Route) -> Response:
        """Return the explanation of a pod. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        if self._running >= AT_ONCE:
            raise ApiStatus(429, "TooManyRequests", f"{AT_ONCE} explanations are already running", retry_after=RETRY_AFTER)
        self._running += 1
        try:
            answer = await self._run_explainer(request.user, route, request.param("node"))
        finally:
            self._running -= 1
        if (problem := answer.unexplained) is not None:
            if problem.kind is PreemptionProblem.REFUSED:
                raise convert_error(from_status(Status.FromString(b64decode(problem.status))), route.resource, route.name)
            if problem.kind is PreemptionProblem.TOO_SLOW:
                raise ApiStatus(504, "Timeout", problem.error, retry_after=RETRY_AFTER)
            raise ApiStatus(500, "InternalError", problem.error)
        assert answer.explanation is not None
        return respond_document({"kind": "Why", "apiVersion": "pinnace.io/v1"} | to_json(answer.explanation), form)

    async def _run_explainer(self, user: User, route: Route, node: str) -> Answer:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pinnace.scheduler.explaining", *explain_arguments(self._servers, user, node),
            "--", route.namespace, route.name,
            stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        try:
            said, complaints = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            return from_json(Answer, json.loads(said))
        except (Malformed, ValueError):
            last = complaints.decode(errors="replace").strip().splitlines()[-1:]
            raise ApiStatus(500, "InternalError", f"the explanation failed: {last[0] if last else 'no output'}") from None


def explain_arguments(servers: ClientConfig, user: User, node: str) -> list[str]:
    """Return the arguments of the process. Values follow "=", because they can start with a dash."""
    result = [f"--server={','.join(servers.endpoints)}", f"--timeout={EXPLAIN_TIMEOUT}", f"--node={node}", f"--as={user.name}"]
    result += [f"--as-group={group}" for group in user.groups]
    if servers.tls is not None:
        result += ["--tls", *(str(path) for path in (servers.tls.ca, servers.tls.cert, servers.tls.key))]
    return result
