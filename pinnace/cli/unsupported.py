"""The verbs of kubectl that pinnace does not have, and the nearest way to what they do."""

_SIMULATED = "`pinnace exec POD -- COMMAND` runs a command in a container, where these are processes and not simulated"
_APPLY = "`pinnace apply -f FILE` creates what is not there and changes what is"

UNSUPPORTED = {
    "attach": _SIMULATED,
    "cluster-info": "`pinnace status` shows a local cluster, `pinnace version` whether a server answers",
    "cp": _SIMULATED,
    "debug": _SIMULATED,
    "port-forward": _SIMULATED,
    "replace": _APPLY,
    "run": "`pinnace create deployment NAME --image IMAGE`, or a manifest of kind Pod and `pinnace apply -f FILE`",
}
"""Each with a hint."""
