"""Certificates that are replaced while they are in use, and certificates that expire."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pinnace.chaos.world import World
from pinnace.cluster.certificates import CONTROLLERS
from pinnace.cluster.certificates import SCHEDULER as SCHEDULER_CERTIFICATE
from pinnace.cluster.links import Link
from pinnace.cluster.spec import APISERVER, ETCD, KUBELET, SCHEDULER, pki_folder
from pinnace.pki import folder as pki
from pinnace.pki.authority import LIFETIME
from pinnace.pki.folder import CLUSTER_CA, ETCD_CA, Ca, Folder

SOON = timedelta(seconds=3)
"""How long a certificate is good that is to expire while connections are open that were made with it."""
SCHEDULERS, SERVERS, ETCD_CLIENTS = "schedulers", "apiservers", "etcd-clients"
"""Targets: all that share a certificate."""


class Rotate:
    """All certificates are replaced by new ones, and all connections break: they are made anew with these."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self.details = ""

    async def begin(self) -> None:
        kubelets = [record.name for record in self._world.cluster.state.of(KUBELET)]
        names = [pki.APISERVER, pki.ADMIN, pki.KUBELET_CLIENT, SCHEDULER_CERTIFICATE, CONTROLLERS, *kubelets]
        of_etcd = [pki.ETCD_SERVER, pki.ETCD_PEER, pki.ETCD_CLIENT]
        await _reissue(self._world, CLUSTER_CA, names)
        await _reissue(self._world, ETCD_CA, of_etcd)
        self.details = f"{len(names) + len(of_etcd)} certificates"
        await self._world.links.reset(self._world.links.all)

    async def end(self) -> None:
        """Nothing to undo."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A certificate: its authority, its name, and where its holder connects or is connected to."""

    ca: Ca
    name: str
    links: tuple[Link, ...]


class Expire:
    """A certificate expires while connections are open that were made with it; the connections break, and new ones are refused.
    A new certificate replaces it at the end: nothing is started again."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._shown = _shown(world, target)
        self._replaced = False
        self.details = f"{self._shown.name}.crt"

    async def begin(self) -> None:
        self._replaced = True
        await _reissue(self._world, self._shown.ca, [self._shown.name], SOON)
        await self._world.links.reset(self._shown.links)
        await asyncio.sleep(SOON.total_seconds())
        await self._world.links.reset(self._shown.links)

    async def end(self) -> None:
        if self._replaced:
            await _reissue(self._world, self._shown.ca, [self._shown.name])
            self._replaced = False


def _shown(world: World, target: str) -> _Shown:
    def links(source: str, to: str) -> tuple[Link, ...]:
        return tuple(link for link in world.links.all if link[0].startswith(source) and link[1].startswith(to))

    if target == SCHEDULERS:
        return _Shown(CLUSTER_CA, SCHEDULER_CERTIFICATE, links(SCHEDULER, APISERVER))
    if target == SERVERS:
        return _Shown(CLUSTER_CA, pki.APISERVER, links("", APISERVER))
    if target == ETCD_CLIENTS:
        return _Shown(ETCD_CA, pki.ETCD_CLIENT, links(APISERVER, ETCD))
    return _Shown(CLUSTER_CA, target, links(target, APISERVER))


async def _reissue(world: World, ca: Ca, names: Sequence[str], lifetime: timedelta = LIFETIME) -> None:
    folder = Folder(pki_folder(world.cluster.spec.data_dir), ca)
    await asyncio.to_thread(folder.reissue, names, datetime.now(UTC), lifetime)
