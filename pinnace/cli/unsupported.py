"""The verbs of kubectl that pinnace does not have, and the nearest way to what they do."""

_SIMULATED = "`pinnace exec POD -- COMMAND` runs a command in a container, where these are processes and not simulated"
_APPLY = "`pinnace apply -f FILE` creates what is not there and changes what is"

UNSUPPORTED = {
    "alpha": "`pinnace --help` shows all that there is",
    "api-versions": "`pinnace api-resources` shows the kinds of objects, each with its version",
    "autoscale": "there is no autoscaler; `pinnace scale deployment/NAME --replicas N`",
    "certificate": "`pinnace pki DIR --user NAME` makes a certificate for a person",
    "expose": "a manifest of kind Service and `pinnace apply -f FILE`; nothing is routed to its pods",
    "kustomize": "`pinnace apply -f -` takes what another program prints",
    "options": "`pinnace VERB --help` ends with the flags that all verbs take",
    "plugin": "`pinnace --help` shows all that there is",
    "proxy": "`pinnace get -o json` prints what a client would be given; the API is gRPC, not HTTP",
    "set": "`pinnace edit KIND/NAME`, or such as "
    "`pinnace patch deployment/web -p 'spec: {template: {spec: {containers: [{name: web, image: \"nginx:2\"}]}}}'`",
    "attach": _SIMULATED,
    "cluster-info": "`pinnace status` shows a local cluster, `pinnace version` whether a server answers",
    "cp": _SIMULATED,
    "debug": _SIMULATED,
    "port-forward": _SIMULATED,
    "replace": _APPLY,
    "run": "`pinnace create deployment NAME --image IMAGE`, or a manifest of kind Pod and `pinnace apply -f FILE`",
}
"""Each with a hint."""
