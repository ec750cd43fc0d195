"""A study of a real cluster: its nodes and pods with pseudonyms, as a snapshot and as CSV, and a study that reads it."""

import json
from collections.abc import Iterable
from pathlib import Path

from pinnace.snapshot.api import Object
from pinnace.snapshot.documents import SnapshotError, writing
from pinnace.snapshot.pseudonyms import import_objects
from pinnace.study.snapshots import snapshot_trace
from pinnace.study.trace import Trace, write_csv

CLUSTER = "cluster.json"
STUDY = """# The nodes and pods of a cluster, imported with pseudonyms: pinnace study run {FOLDER}/study.yaml
name: {NAME}
seeds: 1..3
profiles: profiles.yaml
traces:
- name: imported  # pods arrive as they were created
  format: snapshot
  file: cluster.json
"""
INFLATED = """- name: inflated  # pods in random order, then pods drawn with replacement, up to 130 % of the capacity
  format: snapshot
  file: cluster.json
  inflate: 130
"""
PROFILES = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default
  plugins: {multiPoint: {enabled: [{name: GpuShare}]}}
- schedulerName: pack
  plugins:
    multiPoint: {enabled: [{name: GpuShare}]}
    score: {disabled: [{name: NodeResourcesBalancedAllocation}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def write_import(objects: Iterable[Object], seed: str, folder: Path) -> tuple[Trace, list[Path]]:
    """Write the nodes and pods with pseudonyms, and the study. Return the trace and the files.

    Raise SnapshotError if a file exists, and TraceError if there are no nodes or pods.
    """
    imported = import_objects(objects, seed)
    trace = snapshot_trace("imported", imported, "", "the cluster")
    names = (CLUSTER, "nodes.csv", "tasks.csv", "profiles.yaml", "study.yaml")
    cluster, nodes, tasks, profiles, study = files = [folder / name for name in names]
    if present := [file for file in files if file.exists()]:
        raise SnapshotError(f"{present[0]} already exists; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with writing(cluster) as write:
            for thing in imported:
                write(thing)
        write_csv(trace, nodes, tasks)
        profiles.write_text(PROFILES)
        more = INFLATED if any(map(trace.demand_of, trace.tasks)) else ""
        study.write_text(STUDY.format(FOLDER=folder, NAME=json.dumps(folder.resolve().name)) + more)
    except OSError as error:
        raise SnapshotError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return trace, files
