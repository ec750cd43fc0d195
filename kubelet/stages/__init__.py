"""Behaviour as data: what the containers of the fake runtime do, pod by pod, as stages in YAML.

    text --parse--> Stages --behaviour(pod)--> Behaviour, on which the pod's own annotations have the last word

The words are KWOK's (https://kwok.sigs.k8s.io/docs/user/stages-configuration/): a stage selects pods, comes after a delay with
jitter, and of several of one kind one is chosen by weight. What comes next is not a template of a status as there, but what a
container does: statuses follow from that, as they do for real containers. What KWOK has beyond this is refused, not ignored.
"""

from kubelet.stages.model import Stage, Stages
from kubelet.stages.parse import SETS, StagesError, load, parse

__all__ = ["SETS", "Stage", "Stages", "StagesError", "load", "parse"]
