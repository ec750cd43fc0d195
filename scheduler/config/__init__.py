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
(`scheduler.plugins.aliases`) will do, too. Any field that is not known is refused by name: a setting that does nothing would
be a lie.

    text --parse--> Configuration --build--> frameworks        (`check`: build, with nothing behind it)
      ^---------------- write ----------'
"""

from pinnace.runtime.configuration import ConfigurationError
from scheduler.config.build import build, check, needs, writes
from scheduler.config.model import Configuration, ProfileConfiguration
from scheduler.config.parse import parse, with_plugin
from scheduler.config.write import digest, write

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
