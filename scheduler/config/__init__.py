"""The configuration: a KubeSchedulerConfiguration v1, those fields of it that have a meaning here.

    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    leaderElection: {resourceName: scheduler}
    podInitialBackoffSeconds: 1
    podMaxBackoffSeconds: 10
    profiles:
    - schedulerName: default-scheduler
      plugins:
        multiPoint: {enabled: [{name: "my_plugins:GreenFirst", weight: 5}]}
        filter: {disabled: [{name: NodePorts}]}
        score: {enabled: [{name: NodeResourcesFit, weight: 3}], disabled: [{name: "*"}]}
      pluginConfig:
      - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
    extenders:
    - {urlPrefix: "http://127.0.0.1:8888/scheduler", filterVerb: filter, prioritizeVerb: prioritize, weight: 1}

One profile without a name is the default scheduler's; of several, each must have its name. `plugins` says how sets are merged.
A plugin of one's own is named module:Class or path/file.py:Class; the classic names of built-in plugins
are accepted, too. An unknown field is an error that names the field.

    text --parse--> Configuration --build--> frameworks        (`check`: build, with nothing behind it)
      ^---------------- write ----------'
"""

from pinnace.runtime.configuration import ConfigurationError
from scheduler.config.configuration import Configuration, ProfileConfiguration, build, check, needs, writes
from scheduler.config.serialization import digest, parse, with_plugin, write

__all__ = [
    "Configuration",
    "ConfigurationError",
    "ProfileConfiguration",
    "build",
    "check",
    "digest",
    "needs",
    "parse",
    "with_plugin",
    "write",
    "writes",
]
