"""Pods that wait until they may have their volumes: what they are told, what wakes them, and what does not."""

import asyncio
from typing import Any

import pytest

from pinnace.api.resources import CSI_NODES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.stage import Stage
from tests.unit.scheduler.volume_objects import claim, csi_node, volume

NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def put_claim(stage: Stage, name: str, **fields: Any) -> None:
    made = claim(name, **fields)
    made.metadata.namespace = "default"
    stage.api.put(PERSISTENT_VOLUME_CLAIMS, made)


def ephemeral(name: str) -> PodBuilder:
    builder = make_pod(name)
    builder._pod.spec.volumes.add(name="scratch").volumeSource.ephemeral.SetInParent()
    return builder


async def end(stage: Stage, pods: int) -> None:
    """Of so many pods one a second."""
    for number in range(pods):
        stage.api.remove(PODS, f"default/job{number}")
        await asyncio.sleep(1.0)


def with_jobs(stage: Stage, pods: int) -> None:
    stage.api.put(NODES, make_node("n").build())
    stage.api.put(PODS, *(make_pod(f"job{number}").node("n").build() for number in range(pods)))


def test_end_of_other_pods_does_not_bring_a_claim() -> None:
    """Tried in vain each time, the pod would have to wait for the end of its backoff when the claim is there."""
    stage = Stage()

    async def story() -> None:
        with_jobs(stage, 8)
        stage.api.put(PODS, make_pod("a").claim("data").build())
        await asyncio.sleep(20.0)
        await end(stage, 8)
        stage.api.put(PERSISTENT_VOLUMES, volume("v", phase="Bound"))
        put_claim(stage, "data", volume="v")
        await asyncio.sleep(0.1)
        assert stage.node_of("a") == "n"

    stage.play(story())


@pytest.mark.parametrize("limited", [True, False], ids=["as many as the node may have", "a claim of one pod"])
def test_end_of_pods_without_volumes_frees_none(limited: bool) -> None:
    """When the pod that has what is waited for ends, the next one is there at once."""
    stage = Stage()
    holder, wanted = ("mine", "other") if limited else ("mine", "mine")

    async def story() -> None:
        if limited:
            stage.api.put(CSI_NODES, csi_node("n", d=1))
        for name in ("mine", "other"):
            csi = {"driver": "d", "volumeHandle": name}
            stage.api.put(PERSISTENT_VOLUMES, volume(f"of-{name}", phase="Bound", csi=csi))
            put_claim(stage, name, volume=f"of-{name}", modes=["ReadWriteOncePod"])
        with_jobs(stage, 8)
        stage.api.put(PODS, make_pod("holder").claim(holder).node("n").build(), make_pod("a").claim(wanted).build())
        await asyncio.sleep(20.0)
        await end(stage, 8)
        assert not stage.node_of("a")
        stage.api.remove(PODS, "default/holder")
        await asyncio.sleep(0.1)
        assert stage.node_of("a") == "n"

    stage.play(story())


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (make_pod("a").claim("data"), 'persistentvolumeclaim "data" not found'),
        (ephemeral("a"), 'waiting for ephemeral volume controller to create the persistentvolumeclaim "a-scratch"'),
    ],
    ids=["claim", "ephemeral"],
)
def test_missing_claim_event_names_its_creator(pod: PodBuilder, told: str) -> None:
    stage = Stage()

    async def story() -> None:
        stage.api.put(NODES, make_node("n").build())
        stage.api.put(PODS, pod.build())
        await asyncio.sleep(5.0)
        assert stage.api.told == [f"a FailedScheduling: 0/1 nodes are available: {told}. {NOT_HELPFUL}"]
        assert stage.schedulers[0].count_refusals() == {"VolumeBinding": 1}

    stage.play(story())
