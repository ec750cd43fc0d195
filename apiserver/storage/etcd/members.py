"""The options of a program that talks to etcd, as kube-apiserver has them: by which certificates the two know each other.

gRPC channels to the endpoints of etcd, the choice of the current one, and the translation of etcd's errors.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
import grpc
from aetcd.rpc import ClusterStub, KVStub, LeaseStub, MaintenanceStub, WatchStub

from pinnace.runtime.tls import Credentials, Renewed, TlsFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them to a command, which gets `etcd_tls`. Without any of them that is None: etcd is spoken to in the clear."""

    @click.option("--etcd-cafile", type=_FILE, help="Certificate authorities; etcd must show a certificate from one of them.")
    @click.option("--etcd-certfile", type=_FILE, help="The certificate that etcd is shown, PEM.")
    @click.option("--etcd-keyfile", type=_FILE, help="Its key.")
    @wraps(command)
    def with_credentials(
        *args: Any, etcd_cafile: Path | None, etcd_certfile: Path | None, etcd_keyfile: Path | None, **options: Any
    ) -> None:
        if etcd_cafile and etcd_certfile and etcd_keyfile:
            tls = TlsFiles(etcd_cafile, etcd_certfile, etcd_keyfile)
        elif etcd_cafile or etcd_certfile or etcd_keyfile:
            raise click.UsageError("name all of --etcd-cafile, --etcd-certfile and --etcd-keyfile, or none of them")
        else:
            tls = None
        command(*args, etcd_tls=tls, **options)

    return with_credentials


REQUIRE_LEADER = (("hasleader", "true"),)
"""Metadata that makes a member without a leader refuse (UNAVAILABLE) before it does anything, and end its watches."""

OPTIONS = (
    # etcd ends connections that are pinged more often than every 5 s (its --grpc-keepalive-min-time). What finds a dead one
    # sooner is the timeout: it bounds how long *any* sent byte may stay unacknowledged (TCP_USER_TIMEOUT), and a watch says
    # something every second.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it gRPC waits a minute for the answer, whatever the line above says
    ("grpc.http2.max_pings_without_data", 0),
    # Also the time that one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # etcd bounds what it sends by what it took, and pages and fragments are bounded by the request.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


RETIRED = 10.0
"""Seconds for calls that are under way on a channel that is to be closed. A watch that is open then is resumed on another."""


class Member:
    """The stubs of one endpoint (host:port). Connects on first use."""

    def __init__(self, endpoint: str, shown: Credentials | None) -> None:
        self.endpoint = endpoint
        self._channel = (
            grpc.aio.secure_channel(endpoint, shown.for_channel(), OPTIONS)
            if shown
            else grpc.aio.insecure_channel(endpoint, OPTIONS)
        )
        self.kv = KVStub(self._channel)
        self.lease = LeaseStub(self._channel)
        self.watch = WatchStub(self._channel)
        self.cluster = ClusterStub(self._channel)
        self.maintenance = MaintenanceStub(self._channel)

    async def close(self, grace: float | None = None) -> None:
        """`grace`: seconds for the calls that are under way."""
        await self._channel.close(grace)


class Members:
    def __init__(self, endpoints: Sequence[str], tls: TlsFiles | None) -> None:
        """Raises OSError when the files cannot be used."""
        if not endpoints:
            raise ValueError("no etcd endpoint given; expected something like 127.0.0.1:2379")
        self._endpoints = endpoints
        self._tls = Renewed(tls) if tls is not None else None
        self._retiring: set[asyncio.Task[None]] = set()
        self.all = self._connected()
        self.current = self.all[0]

    def leave(self, member: Member) -> None:
        """`member` failed: go to the next one, unless somebody has done so already."""
        if member is self.current:
            number = self.all.index(member)
            if self._tls is not None and self._tls.renew():
                for former in self.all:
                    task = asyncio.create_task(former.close(RETIRED))
                    self._retiring.add(task)
                    task.add_done_callback(self._retiring.discard)
                self.all = self._connected()
            self.current = self.all[(number + 1) % len(self.all)]

    async def close(self) -> None:
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for member in self.all:
            await member.close()

    def _connected(self) -> list[Member]:
        return [Member(endpoint, self._tls.current if self._tls else None) for endpoint in self._endpoints]
