"""The verbs and flags of kubectl that pinnace does not have, with the nearest alternatives as hints."""

from collections.abc import Mapping

_SIMULATED = "`pinnace exec POD -- COMMAND` runs a command in a container, if the kubelet uses --runtime process"
_APPLY = "`pinnace apply -f FILE` creates objects and changes existing ones"

UNSUPPORTED = {
    "alpha": "`pinnace --help` lists all verbs",
    "api-versions": "`pinnace api-resources` lists the kinds of objects with their versions",
    "autoscale": "autoscaling is not supported; use `pinnace scale deployment/NAME --replicas N`",
    "certificate": "`pinnace pki DIR --user NAME` creates a certificate for a user",
    "config": "`kubectl config` shows and changes the kubeconfig, which pinnace uses, too",
    "kustomize": "`pinnace apply -f -` reads manifests from stdin",
    "options": "`pinnace VERB --help` lists the global flags",
    "plugin": "`pinnace --help` lists all verbs",
    "proxy": "`pinnace get -o json` prints objects as JSON; the gateway serves the REST API",
    "attach": _SIMULATED,
    "cluster-info": "`pinnace status` shows a local cluster, `pinnace version` the version of the server",
    "cp": _SIMULATED,
    "debug": _SIMULATED,
    "port-forward": _SIMULATED,
    "replace": _APPLY,
}
"""Hints for verbs."""

_EDIT = "`pinnace edit KIND/NAME`, or `pinnace patch KIND NAME -p PATCH`"

SUBCOMMANDS: Mapping[str, Mapping[str, str]] = {
    "auth": {"reconcile": "`pinnace apply -f FILE`"},
    "set": {"env": _EDIT, "resources": _EDIT, "selector": _EDIT, "serviceaccount": _EDIT, "subject": _EDIT},
}
"""Hints for subcommands."""

_CONTEXT = "it is part of a context, which --context selects: see `kubectl config --help`"
_WHO = "users authenticate with certificates; --as impersonates another user"
_OBJECTS = "specify objects, as in deployment/web, or a selector with -l"
_KUSTOMIZE = "`kustomize build DIR | pinnace apply -f -`"
_NOTHING = "omit it: it has no effect"
_DRY_RUN = "`pinnace apply --server-side --dry-run=server` reports conflicts and writes nothing"
_KUBECTL = "kubectl has it, and uses the same kubeconfig"
_LABELS = "`pinnace get KIND NAME --show-labels` shows the labels"

_OF_ANY = {
    "--allow-missing-template-keys": "omit it: missing keys are always empty",
    "--as-uid": _WHO,
    "--certificate-authority": _CONTEXT,
    "--chunk-size": _NOTHING,
    "--client-certificate": _CONTEXT,
    "--client-key": _CONTEXT,
    "--cluster": _CONTEXT,
    "--dry-run": "`pinnace apply -f FILE --dry-run=server` and `pinnace diff -f FILE` show the result of a manifest",
    "--field-manager": _NOTHING,
    "--filename": _OBJECTS,
    "--insecure-skip-tls-verify": _CONTEXT,
    "--kustomize": _KUSTOMIZE,
    "--raw": "the client uses gRPC; -o json prints objects as JSON",
    "--record": "`pinnace annotate KIND/NAME kubernetes.io/change-cause=TEXT`",
    "--request-timeout": "--timeout limits the duration of the command",
    "--template": "-o jsonpath=TEMPLATE",
    "--tls-server-name": _CONTEXT,
    "--token": _WHO,
    "--user": _CONTEXT,
    "-f": _OBJECTS,
    "-k": _KUSTOMIZE,
    "-s": "--server HOST:PORT",
}
FLAGS: Mapping[str, Mapping[str, str]] = {
    "annotate": {"--list": "`pinnace get KIND NAME -o jsonpath={.metadata.annotations}` shows the annotations"},
    "apply": {
        "--force": "`pinnace delete -f FILE`, then `pinnace apply -f FILE`",
        "--output": "`pinnace get -o yaml` shows the objects",
        "--prune": "delete objects that the manifests no longer contain with `pinnace delete`, by name or with -l",
        "--selector": "all objects of the manifests are applied",
        "--wait": "`pinnace wait` waits for a condition",
        "-l": "all objects of the manifests are applied",
        "-o": "`pinnace get -o yaml` shows the objects",
    },
    "create deployment": {"--port": "edit a manifest: --dry-run=client -o yaml prints one"},
    "describe": {"--show-events": "`pinnace get -o yaml` shows an object without its events"},
    "diff": {"--force-conflicts": _DRY_RUN, "--server-side": _DRY_RUN},
    "drain": {
        "--disable-eviction": "`pinnace delete pods -A --field-selector spec.nodeName=NODE` ignores disruption budgets",
        "--dry-run": "`pinnace get pods -A --field-selector spec.nodeName=NODE` shows the pods of the node",
        "--skip-wait-for-delete-timeout": _NOTHING,
    },
    "edit": {"--subresource": _KUBECTL},
    "get": {
        "--output-watch-events": "`pinnace get KIND -w -o json` shows the deletionTimestamp of deleted objects",
        "--subresource": _KUBECTL,
        "--show-kind": "the kind is shown if there are several, as in pods,nodes",
        "--watch-only": "-w first prints the existing objects",
    },
    "label": {"--list": _LABELS},
    "run": {
        "--attach": _KUBECTL,
        "--expose": "`pinnace expose pod NAME --port PORT` creates a service",
        "--rm": _KUBECTL,
        "--stdin": _KUBECTL,
        "--tty": _KUBECTL,
        "-i": _KUBECTL,
        "-t": _KUBECTL,
    },
    "rollout undo": {"--dry-run": "`pinnace rollout history deployment/NAME --revision N` shows the revision"},
}
"""Hints for flags by verb."""


def flag_hint(verb: str, flag: str) -> str:
    """Return the hint for a flag of kubectl, or an empty string. `verb` is the command, such as "rollout undo"."""
    return FLAGS.get(verb, {}).get(flag) or _OF_ANY.get(flag, "")
