"""The timeline in the gateway: a site with its own listener, and links for users of the Kubernetes API.

A user with a certificate or token requests a link from the Kubernetes API (`POST /timeline/links`) and opens it in a browser.
The link contains a one-time token, and the session acts as this user. The user needs permission to watch keys in the group
pinnace.io. The permission is checked repeatedly while a page is open.

For a cluster on this machine (`--data-dir`), the timeline also displays the state of processes and the scheduling queue, and
members of system:masters can kill and freeze processes. The gateway executes these actions with the command line, so the page
has no additional capabilities. Users that may patch nodes can fail virtual nodes, and users that may transfer elections can
transfer the leadership. The gateway executes these actions as the user.

The keys are only watched while the site has viewers, and for VIEWER_GRACE seconds afterwards.
"""

import asyncio
import json
import logging
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout
from google.protobuf.message import Message

from pinnace.api.authorization_pb2 import AccessReview, ResourceAttributes, SelfSubjectAccessReviewRequest
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.elections_pb2 import TransferElectionRequest, TransferElectionResponse
from pinnace.api.verbs_pb2 import GetRequest, PatchRequest
from pinnace.api.wellknown import FAULT_ANNOTATION, FLEET_LABEL, SCHEDULER_ELECTION
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from pinnace.cluster import processes
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.observer import ProcessObserver
from pinnace.cluster.spec import SCHEDULER, SLOW_LEASE, ProcessRecord
from pinnace.gateway.backend import Backend
from pinnace.gateway.dispatch import LINKS_PATH
from pinnace.gateway.http import ApiStatus, Request, Response, User, dump_json
from pinnace.timeline.items import NODES_LANE, TimelineItem, process_item, queue_item
from pinnace.timeline.site import ActionError, TimelineSite, Viewer, ViewerSessions, serve_site
from pinnace.timeline.source import LiveTimelineSource

log = logging.getLogger(__name__)

VIEWER_GRACE = 60.0
POLL_INTERVAL = 0.1
"""Seconds between two checks of the processes of a local cluster. The end of a process is noticed at once."""
QUEUE_INTERVAL = 1.0
ACTION_TIMEOUT = 20.0
MASTERS = "system:masters"
LEADER = "leader"
WATCH_KEYS = ResourceAttributes(verb="watch", group="pinnace.io", resource="keys")
RUN_LANE = "run"
_TARGET = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PENDING = re.compile(r'^scheduler_pending_pods\{[^}]*queue="(\w+)"[^}]*\} ([0-9.e+]+)$', re.MULTILINE)


class Action(NamedTuple):
    """Arguments of the command line. "{}" is replaced by the target."""

    arguments: tuple[str, ...]
    done: str


RESUME, START = "resume", "start"
ACTIONS: Mapping[str, Action] = {
    "kill": Action(("kill", "{}"), "killed {}"),
    "freeze": Action(("kill", "{}", "--signal", "STOP"), "froze {}"),
    RESUME: Action(("kill", "{}", "--signal", "CONT"), "resumed {}"),
    START: Action(("start",), "started what was down"),
}
FAIL, RECOVER, TRANSFER = "fail", "recover", "transfer"
NODE_ACTIONS = (FAIL, RECOVER)
API_ACTIONS: Mapping[str, ResourceAttributes] = {
    FAIL: ResourceAttributes(verb="patch", resource="nodes"),
    RECOVER: ResourceAttributes(verb="patch", resource="nodes"),
    TRANSFER: ResourceAttributes(verb="transfer", group="pinnace.io", resource="elections"),
}
"""Actions that the gateway executes as the viewer, with the permission that they need."""


class LocalCluster:
    """The processes of a cluster with a data directory on this machine."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._folder = ClusterFolder(data_dir)
        self._observer = ProcessObserver(self._process_records)
        self._http: dict[str, str] = {}

    def process_changes(self, now: float) -> list[TimelineItem]:
        """Return items for the processes whose state has changed since the last call."""
        return [process_item(now, change.name, change.state) for change in self._observer.poll_changes()]

    async def wait_for_exit(self, seconds: float) -> None:
        """Return when a process has ended, at the latest after `seconds`."""
        await self._observer.wait(seconds)

    def status_address(self, name: str) -> str | None:
        """Return the "host:port" of a process' status server."""
        return self._http.get(name)

    def frozen_schedulers(self) -> Sequence[str]:
        return processes.suspended_processes(record for record in self._process_records() if record.component == SCHEDULER)

    def lease_ttl(self) -> float | None:
        """Return the seconds of the leases of elections; None for the default."""
        with suppress(ClusterError):
            state = self._folder.read()
            return SLOW_LEASE if state is not None and state.spec.slow_motion else None
        return None

    def _process_records(self) -> Sequence[ProcessRecord]:
        try:
            state = self._folder.read()
        except ClusterError:
            state = None
        if state is None:  # the cluster was deleted
            return ()
        self._http = {record.name: record.plan.http for record in state.processes}
        return state.processes

    async def run(self, arguments: Sequence[str]) -> str:
        """Run the command line on this cluster. Raises ActionError with the printed error."""
        command = (sys.executable, "-m", "pinnace.cli.entry", *arguments, "--data-dir", str(self._data_dir))
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(ACTION_TIMEOUT):
                out, _ = await process.communicate()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            raise ActionError(f"timed out after {ACTION_TIMEOUT:g} s") from None
        text = out.decode(errors="replace").strip()
        if process.returncode:
            raise ActionError(text[-400:] or f"exit code {process.returncode}")
        return text


class ClusterActions:
    """The actions of viewers. Each leaves a mark."""

    def __init__(self, cluster: LocalCluster | None, source: LiveTimelineSource, backend: Backend) -> None:
        self._cluster = cluster
        self._source = source
        self._backend = backend
        self._count = 0

    async def permitted_actions(self, viewer: Viewer) -> Sequence[str]:
        """Names of actions. The API servers decide about those of API_ACTIONS."""
        local = tuple(ACTIONS) if self._cluster and MASTERS in viewer.groups else ()
        allowed = await asyncio.gather(
            *(review_permission(self._backend, viewer, api_action) for api_action in API_ACTIONS.values())
        )
        return *local, *(name for name, granted in zip(API_ACTIONS, allowed, strict=True) if granted)

    async def run(self, viewer: Viewer, name: str, target: str) -> str:
        if not _TARGET.fullmatch(target):
            raise ActionError(f'"{target[:80]}" is not the name of a process, a node or an election')
        self._count += 1
        log.info("%s %s, by %s", name, target, viewer.name)
        target = self._resolve_process(name, target)
        lane = NODES_LANE if name in NODE_ACTIONS else RUN_LANE if name == START else target
        mark = partial(self._source.mark, f"action/{self._count}", kind="action", text=f"{viewer.name}: {name} {target}")
        began = self._source.now()
        try:
            if name == TRANSFER:
                answer = await self._transfer_leadership(viewer, target)
                lane, text = answer.before.holder, f"{answer.after.holder or 'no candidate'} leads {target}"
            else:
                text = await self._perform_action(viewer, name, target)
        except ApiError as error:
            raise ActionError(error.message) from None
        await self._source.add([mark(lane=lane, at=began)])
        return text

    def _resolve_process(self, name: str, target: str) -> str:
        """The process that "leader" stands for: the leading scheduler, or for `resume` the frozen one."""
        if self._cluster is None or target != LEADER or name not in ACTIONS or name == START:
            return target
        if name != RESUME:
            return self._source.leader(SCHEDULER_ELECTION) or target
        frozen = self._cluster.frozen_schedulers()
        return frozen[0] if len(frozen) == 1 else target

    async def _transfer_leadership(self, viewer: Viewer, election: str) -> TransferElectionResponse:
        data = await self._call(viewer, "/pinnace.v1.Elections/Transfer", TransferElectionRequest(name=election))
        return TransferElectionResponse.FromString(data)

    async def _perform_action(self, viewer: Viewer, name: str, target: str) -> str:
        if name in API_ACTIONS:
            node = Node.FromString(await self._call(viewer, "/pinnace.v1.Nodes/Get", GetRequest(name=target)))
            if FLEET_LABEL not in node.metadata.labels:
                raise ActionError(f"{target} is not a virtual node")
            patch = {"metadata": {"annotations": {FAULT_ANNOTATION: "failed" if name == FAIL else None}}}
            request = PatchRequest(name=target, type=PatchRequest.MERGE, patch=json.dumps(patch).encode())
            await self._call(viewer, "/pinnace.v1.Nodes/Patch", request)
            return f"{target} {'failed' if name == FAIL else 'recovered'}"
        assert self._cluster is not None
        action = ACTIONS[name]
        await self._cluster.run([argument.format(target) for argument in action.arguments])
        return action.done.format(target)

    async def _call(self, viewer: Viewer, method: str, message: Message) -> bytes:
        request = Request("POST", LINKS_PATH, {}, {}, user=User(viewer.name, viewer.groups))
        return await self._backend.call(request, method, message)


async def review_permission(backend: Backend, viewer: Viewer, attributes: ResourceAttributes) -> bool:
    """Return whether the viewer has a permission; False without an answer."""
    request = Request("POST", LINKS_PATH, {}, {}, user=User(viewer.name, viewer.groups))
    message = SelfSubjectAccessReviewRequest(attributes=attributes)
    try:
        data = await backend.call(request, "/pinnace.v1.Authorization/SelfSubjectAccessReview", message, retry=True)
    except ApiError as error:
        log.warning("permission of %s: %s", viewer.name, error.message)
        return False
    return AccessReview.FromString(data).allowed


class TimelineService:
    """The timeline's site with its live source. `run` serves it."""

    def __init__(self, connection: Connection, backend: Backend, address: tuple[str, int], data_dir: Path | None) -> None:
        self._backend = backend
        self._address = address
        self._source = LiveTimelineSource(connection, f"pinnace · {data_dir.name}" if data_dir else "pinnace")
        self._cluster = LocalCluster(data_dir) if data_dir else None
        self._sessions = ViewerSessions()
        self._viewed = asyncio.Event()
        self._viewers = 0
        actions = ClusterActions(self._cluster, self._source, backend)
        lease_ttl = self._cluster.lease_ttl if self._cluster else lambda: None
        self._site = TimelineSite(
            self._source, self._sessions, actions, self._permits_viewer, self._set_viewer_count, lease_ttl
        )
        self._url = ""

    async def run(self) -> None:
        """Serve until cancelled. If the address is in use, an error is logged and the gateway runs without the timeline."""
        try:
            runner, self._url = await serve_site(self._site, *self._address)
        except OSError as error:
            log.error("unable to serve the timeline on %s:%d: %s", *self._address, error.strerror or error)
            return
        log.info("serving the timeline on %s", self._url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._site.run())
                group.create_task(self._follow_while_viewed())
        finally:
            await runner.cleanup()

    async def create_link(self, request: Request) -> Response:
        """Return a one-time link for the user of the request. Raises ApiStatus."""
        if not self._url:
            raise ApiStatus(503, "ServiceUnavailable", "the timeline is not available; see the gateway's log")
        viewer = Viewer(request.user.name, request.user.groups)
        if not await self._permits_viewer(viewer):
            raise ApiStatus(
                403, "Forbidden", f'User "{request.user.name}" cannot watch resource "keys" in API group "pinnace.io"'
            )
        return Response(201, dump_json({"url": self._sessions.create_link(self._url, viewer)}))

    async def _permits_viewer(self, viewer: Viewer) -> bool:
        return await review_permission(self._backend, viewer, WATCH_KEYS)

    def _set_viewer_count(self, count: int) -> None:
        self._viewers = count
        if count:
            self._viewed.set()
        else:
            self._viewed.clear()

    async def _follow_while_viewed(self) -> None:
        while True:
            await self._viewed.wait()
            following = [asyncio.create_task(self._source.run()), asyncio.create_task(self._poll_local_cluster())]
            try:
                idle = 0.0
                while idle < VIEWER_GRACE:
                    await asyncio.sleep(1.0)
                    idle = 0.0 if self._viewers else idle + 1.0
                    for task in following:
                        if task.done():
                            task.result()
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)

    async def _poll_local_cluster(self) -> None:
        """Poll the processes and the queue of a local cluster."""
        cluster = self._cluster
        if cluster is None:
            return
        asked, sizes = 0.0, None
        async with ClientSession(timeout=ClientTimeout(total=QUEUE_INTERVAL)) as http:
            while True:
                now = time.time()
                if items := cluster.process_changes(now):
                    await self._source.add(items)
                if now - asked > QUEUE_INTERVAL:
                    asked = now
                    numbers = await self._read_queue_counts(cluster, http)
                    if numbers is not None and numbers != sizes:
                        sizes = numbers
                        await self._source.add([queue_item(now, numbers)])
                await cluster.wait_for_exit(POLL_INTERVAL)

    async def _read_queue_counts(self, cluster: LocalCluster, http: ClientSession) -> dict[str, int] | None:
        address = cluster.status_address(self._source.leader(SCHEDULER_ELECTION))
        if address is None:
            return None
        with suppress(ClientError, TimeoutError, OSError, ValueError):
            async with http.get(f"http://{address}/metrics") as response:
                text = await response.text()
            return {name: int(float(value)) for name, value in _PENDING.findall(text)}
        return None
