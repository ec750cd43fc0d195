"""The etcd members: command-line options for TLS, gRPC channels, and the choice of the current member.

The options have the names of kube-apiserver's.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
import grpc
from aetcd.rpc import ClusterStub, KVStub, LeaseStub, MaintenanceStub, WatchStub

from pinnace.runtime.tls import Credentials, ReloadingCredentials, TlsFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

REQUIRE_LEADER = (("hasleader", "true"),)
"""Metadata for a call that a member without a leader must refuse (UNAVAILABLE) before it executes it, and for watches that it
must end."""

OPTIONS = (
    # etcd ends connections with pings more often than every 5 s (its --grpc-keepalive-min-time). Dead connections are detected
    # sooner by the timeout: it limits the time for which *any* sent byte may stay unacknowledged (TCP_USER_TIMEOUT), and a
    # watch sends something every second.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it, gRPC waits a minute for the response, despite keepalive_timeout_ms
    ("grpc.http2.max_pings_without_data", 0),
    # Also the timeout of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # etcd limits responses by the size of earlier requests, and the request limits pages and fragments.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

RETIRED = 10.0
"""Seconds for the calls in progress on a channel before it is closed. An open watch is resumed on another channel."""


def add_tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the TLS options to a command, which receives `etcd_tls`. It is None without the options: no TLS."""

    @click.option("--etcd-cafile", type=_FILE, help="Certificate authority file for the verification of etcd's certificate.")
    @click.option("--etcd-certfile", type=_FILE, help="Client certificate file for etcd.")
    @click.option("--etcd-keyfile", type=_FILE, help="Key file of the client certificate.")
    @wraps(command)
    def with_credentials(
        *args: Any, etcd_cafile: Path | None, etcd_certfile: Path | None, etcd_keyfile: Path | None, **options: Any
    ) -> None:
        if etcd_cafile and etcd_certfile and etcd_keyfile:
            tls = TlsFiles(etcd_cafile, etcd_certfile, etcd_keyfile)
        elif etcd_cafile or etcd_certfile or etcd_keyfile:
            raise click.UsageError("--etcd-cafile, --etcd-certfile and --etcd-keyfile must be set together")
        else:
            tls = None
        command(*args, etcd_tls=tls, **options)

    return with_credentials


class EtcdMember:
    """The stubs of one endpoint (host:port). It connects at the first call."""

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
        """Close the channel. `grace`: seconds for the calls in progress."""
        await self._channel.close(grace)


class EtcdMembers:
    def __init__(self, endpoints: Sequence[str], tls: TlsFiles | None) -> None:
        """Raises OSError if the TLS files cannot be read."""
        if not endpoints:
            raise ValueError("no etcd endpoint given; expected HOST:PORT, such as 127.0.0.1:2379")
        self._endpoints = endpoints
        self._tls = ReloadingCredentials(tls) if tls is not None else None
        self._retiring: set[asyncio.Task[None]] = set()
        self.all = self._connect_members()
        self.current = self.all[0]

    def switch_member(self, member: EtcdMember) -> None:
        """Switch from `member`, which failed, to the next one, unless another call has done so."""
        if member is self.current:
            number = self.all.index(member)
            if self._tls is not None and self._tls.reload_if_changed():
                for former in self.all:
                    task = asyncio.create_task(former.close(RETIRED))
                    self._retiring.add(task)
                    task.add_done_callback(self._retiring.discard)
                self.all = self._connect_members()
            self.current = self.all[(number + 1) % len(self.all)]

    async def close(self) -> None:
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for member in self.all:
            await member.close()

    def _connect_members(self) -> list[EtcdMember]:
        return [EtcdMember(endpoint, self._tls.current if self._tls else None) for endpoint in self._endpoints]
