"""ImageLocality: nodes that have the pod's images already are liked, the more so the larger these are.

An image counts with its size times the share of nodes that have it, so that not all pods gather where an image is first. What
is less than 23 MiB in all makes no difference, nor what is more than 1,000 MiB for each container. The size is the one that
the node itself reports.

Source: https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from collections import Counter

import numpy as np

from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Sees, Status

_LEAST = 23 << 20
_MOST = 1000 << 20


class ImageLocality:
    name = "ImageLocality"
    score_sees = Sees.NODES

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        """Skipped where all scores are 0: every node has the small image of a pod's sandbox, say, and no other."""
        spec = pod.raw.spec
        return None if nodes.largest_image * (len(spec.initContainers) + len(spec.containers)) > _LEAST else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        spec = pod.raw.spec
        images = [tagged(container.image) for containers in (spec.initContainers, spec.containers) for container in containers]
        total: FloatArray = np.zeros(len(nodes))
        for image, containers in Counter(filter(nodes.has_image, images)).items():
            sizes = nodes.image(image)
            total += sizes * (containers * np.count_nonzero(sizes) / len(nodes))
        most = _MOST * max(len(images), 1)
        return (total.clip(_LEAST, most) - _LEAST) * (MAX_SCORE / (most - _LEAST))


def tagged(image: str) -> str:
    """As nodes report it: without a tag, "latest" is meant."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
