"""Reads the ConfigMaps, Secrets and claims of process pods, and keeps their volumes up to date.

    a pod comes --> its objects are read --> its volumes are written --> containers start
                       ^            '--missing: an event; tried again with back-off
                       '-- every SYNC_PERIOD: changed objects, labels and annotations are written again

The caller has created the folders of the pod. As in Kubernetes:

* A missing object or key of a volume keeps all containers waiting (event FailedMount). One of a variable keeps its container
  waiting (CreateContainerConfigError, event Failed). Optional ones are left out.
* Files follow changes of their objects and of the pod within SYNC_PERIOD and the time of a read. Variables do not; a container
  gets the current values when it starts again.
* Tokens of service accounts are replaced before they expire.
* An immutable object is read once. A deleted object, and one that cannot be read, leave the files as they are.

Each object is read with one call, which the node authorizer allows for the pods of the fleet. An object of several pods is read
once in a round.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod
from pinnace.api.pods import all_containers
from pinnace.api.references import CLAIM, CONFIG_MAP, SECRET, Reference, pod_references
from pinnace.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, Resource
from pinnace.client.errors import ApiError, NotFound, unavailable_error
from pinnace.client.workqueue import DelayingQueue
from pinnace.kubelet.runtime.interface import Moment, UnsupportedPod, VolumeProgress
from pinnace.kubelet.runtime.process.atomic_writer import write_atomically
from pinnace.kubelet.runtime.process.objects import (
    NO_OBJECTS,
    MissingObject,
    Objects,
    config_error,
    is_written_by_volume_files,
    volume_files,
)
from pinnace.kubelet.runtime.process.plan import make_volumes, unsupported_volume, volume_paths
from pinnace.kubelet.runtime.process.root import RuntimeRoot
from pinnace.kubelet.runtime.process.tokens import PodTokens, RequestToken, token_keys
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

SYNC_PERIOD = 5.0
"""Seconds between two reads of the objects of a pod. Kubernetes' kubelet looks every minute, and watches."""
FIRST_RETRY = 0.25
"""Seconds until a missing object is read again, doubled up to SYNC_PERIOD."""
CALLS = 16
"""Maximum calls at the same time."""
TIMEOUT = 10.0
"""Maximum seconds of a read."""
PODS_PER_ROUND = 256
WAITING = float("inf")
RESOURCES: Mapping[str, Resource[Any]] = {CONFIG_MAP: CONFIG_MAPS, SECRET: SECRETS, CLAIM: PERSISTENT_VOLUME_CLAIMS}


class ObjectReader(Protocol):
    """Reads an object."""

    async def __call__(self, resource: Resource[Any], name: str, namespace: str) -> Any:
        """Raises ApiError."""
        ...


class _MountedPod:
    """The volumes and objects of one pod."""

    def __init__(self, pod: Pod, tokens: PodTokens) -> None:
        self.pod = pod
        self.tokens = tokens
        self.objects: dict[Reference, Message | None] = {}
        self.progress = VolumeProgress(False, {})
        self.told = ""
        """The last failure. There is one event for each."""

    @property
    def references(self) -> frozenset[Reference]:
        return frozenset(pod_references(self.pod))


class ProcessVolumeManager:
    """Implements kubelet.runtime.interface.Volumes for the process runtime. Call `set_listener` first."""

    def __init__(self, root: RuntimeRoot, read: ObjectReader, request_token: RequestToken, clock: Clock = SYSTEM_CLOCK) -> None:
        """`request_token`: gets the tokens of service accounts."""
        self._root = root
        self._request_token = request_token
        self._read_object = read
        self._clock = clock
        self._pods: dict[str, _MountedPod] = {}
        self._queue = DelayingQueue(clock)
        self._pauses = KeyedBackoff(FIRST_RETRY, SYNC_PERIOD)
        self._calls = asyncio.Semaphore(CALLS)
        self._report: Callable[[str, VolumeProgress], None] = lambda uid, progress: None
        self._event: Callable[[Pod, str, str, str], None] = lambda pod, type_, reason, message: None

    def set_listener(self, report: Callable[[str, VolumeProgress], None], event: Callable[[Pod, str, str, str], None]) -> None:
        self._report, self._event = report, event

    def publish_volumes(self, pod: Pod, now: Moment) -> float:
        needs = any(is_written_by_volume_files(volume) or unsupported_volume(volume) for volume in pod.spec.volumes)
        if not needs and next(pod_references(pod), None) is None:
            return now.monotonic
        uid = pod.metadata.uid
        self._pods[uid] = _MountedPod(pod, PodTokens(self._request_token, random.random))
        self._queue.add(uid)
        return WAITING

    def adopt_volumes(self, pod: Pod, now: Moment, *, started: bool) -> float:
        """Running containers continue. None starts before the objects are read."""
        return self.publish_volumes(pod, now)

    def update(self, pod: Pod) -> None:
        if (mounts := self._pods.get(pod.metadata.uid)) is not None:
            mounts.pod = pod

    def unpublish_volumes(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self._pods.pop(uid, None) is not None:
            self._queue.discard(uid)
            self._pauses.forget(uid)

    def objects(self, uid: str) -> Objects:
        """The objects of a pod, as they were read last."""
        mounts = self._pods.get(uid)
        return mounts.objects if mounts is not None else NO_OBJECTS

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            uids = await self._queue.get_batch(PODS_PER_ROUND)
            round_ = {uid: mounts for uid in uids if (mounts := self._pods.get(uid)) is not None}
            errors = await self._read_objects(round_.values())
            await asyncio.gather(*(self._renew_tokens(mounts) for mounts in round_.values()))
            for uid, mounts in round_.items():
                if self._pods.get(uid) is mounts:
                    await self._sync_pod_volumes(uid, mounts, errors)

    async def _renew_tokens(self, mounts: _MountedPod) -> None:
        if next(token_keys(mounts.pod), None) is not None:
            async with self._calls:
                await mounts.tokens.renew(mounts.pod, self._clock.time())

    async def _read_objects(self, round_: Iterable[_MountedPod]) -> Mapping[tuple[str, Reference], ApiError]:
        """Read the objects of these pods. Return the failures."""
        wanted: dict[tuple[str, Reference], list[_MountedPod]] = {}
        for mounts in round_:
            for reference in mounts.references:
                known = mounts.objects.get(reference)
                if not getattr(known, "immutable", False):
                    wanted.setdefault((mounts.pod.metadata.namespace, reference), []).append(mounts)
        results = await asyncio.gather(*(self._read_reference(namespace, reference) for namespace, reference in wanted))
        errors = {}
        for (key, owners), result in zip(wanted.items(), results, strict=True):
            if isinstance(result, ApiError):
                errors[key] = result
                continue
            for mounts in owners:
                mounts.objects[key[1]] = result
        return errors

    async def _read_reference(self, namespace: str, reference: Reference) -> Message | ApiError | None:
        """None: there is no such object. For a bound claim, the volume."""
        async with self._calls:
            try:
                async with asyncio.timeout(TIMEOUT):
                    obj: Message = await self._read_object(RESOURCES[reference.kind], reference.name, namespace)
                    if isinstance(obj, PersistentVolumeClaim) and obj.spec.volumeName and obj.status.phase == "Bound":
                        obj = await self._read_object(PERSISTENT_VOLUMES, obj.spec.volumeName, "")
                    return obj
            except NotFound:
                return None
            except TimeoutError:
                return unavailable_error(f"timed out after {TIMEOUT:g} s")
            except ApiError as error:
                return error

    async def _sync_pod_volumes(self, uid: str, mounts: _MountedPod, errors: Mapping[tuple[str, Reference], ApiError]) -> None:
        """Write the volumes of a pod, and report what its containers wait for."""
        pod, failure = mounts.pod, ""
        unread = [reference for reference in mounts.references if reference not in mounts.objects]
        if unread:
            failure = f'{unread[0].kind} "{unread[0].name}": {errors.get((pod.metadata.namespace, unread[0]), "not read yet")}'
        else:
            failure = await self._mount_volumes(uid, mounts)
        if self._pods.get(uid) is not mounts:  # the pod was deleted meanwhile
            return
        if failure and failure != mounts.told:
            self._event(pod, "Warning", "FailedMount", failure)
        mounted = mounts.progress.mounted or not failure
        held = self._containers_with_config_errors(mounts) if mounted else {}
        for message in {message for name, message in held.items() if mounts.progress.held.get(name) != message}:
            self._event(pod, "Warning", "Failed", f"Error: {message}")
        mounts.told = failure
        now = self._clock.monotonic()
        self._queue.add_at(uid, now + (self._pauses.next_delay(uid) if failure or held else SYNC_PERIOD))
        if not (failure or held):
            self._pauses.forget(uid)
        if mounts.progress != (progress := VolumeProgress(mounted, held)):
            mounts.progress = progress
            self._report(uid, progress)

    def _containers_with_config_errors(self, mounts: _MountedPod) -> dict[str, str]:
        containers = all_containers(mounts.pod.spec)
        result = {container.name: config_error(mounts.pod, container, mounts.objects) for container in containers}
        return {name: message for name, message in result.items() if message}

    async def _mount_volumes(self, uid: str, mounts: _MountedPod) -> str:
        """Return the failure, or an empty string. Files are written in a thread."""
        pod, folder = mounts.pod, self._root.pod_directory(uid) / "volumes"
        name = ""
        try:
            for volume in pod.spec.volumes:
                name = volume.name
                if kind := unsupported_volume(volume):
                    raise UnsupportedPod(f"the process runtime does not support {kind}")
                if is_written_by_volume_files(volume):
                    files = volume_files(pod, volume, mounts.objects, mounts.tokens.current)
                    await asyncio.to_thread(write_atomically, folder / volume.name, files)
            if not mounts.progress.mounted:
                make_volumes(pod, volume_paths(pod, folder, mounts.objects), mounts.objects)
        except (MissingObject, UnsupportedPod, OSError, ValueError) as error:
            return f'MountVolume.SetUp failed for volume "{name}" : {error}'
        return ""
