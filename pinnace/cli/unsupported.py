"""The verbs and flags of kubectl that pinnace does not have, and the nearest way to what they do."""

from collections.abc import Mapping

_SIMULATED = "`pinnace exec POD -- COMMAND` runs a command in a container, where these are processes and not simulated"
_APPLY = "`pinnace apply -f FILE` creates what is not there and changes what is"

UNSUPPORTED = {
    "alpha": "`pinnace --help` shows all that there is",
    "api-versions": "`pinnace api-resources` shows the kinds of objects, each with its version",
    "autoscale": "there is no autoscaler; `pinnace scale deployment/NAME --replicas N`",
    "certificate": "`pinnace pki DIR --user NAME` makes a certificate for a person",
    "kustomize": "`pinnace apply -f -` takes what another program prints",
    "options": "`pinnace VERB --help` ends with the flags that all verbs take",
    "plugin": "`pinnace --help` shows all that there is",
    "proxy": "`pinnace get -o json` prints what a client would be given; the API is gRPC, not HTTP",
    "attach": _SIMULATED,
    "cluster-info": "`pinnace status` shows a local cluster, `pinnace version` whether a server answers",
    "cp": _SIMULATED,
    "debug": _SIMULATED,
    "port-forward": _SIMULATED,
    "replace": _APPLY,
}
"""Each with a hint."""

_EDIT = "`pinnace edit KIND/NAME`, or `pinnace patch KIND NAME -p PATCH`"

SUBCOMMANDS: Mapping[str, Mapping[str, str]] = {
    "auth": {"reconcile": "`pinnace apply -f FILE`"},
    "config": {
        "delete-cluster": "a context holds its servers: `pinnace config delete-context NAME`",
        "delete-user": "a context holds its certificate: `pinnace config delete-context NAME`",
        "get-clusters": "`pinnace config get-contexts` lists the contexts with their servers",
        "get-users": "`pinnace config get-contexts` lists the contexts",
        "set": "`pinnace config set-context NAME` sets what a context has",
        "set-cluster": "`pinnace config set-context NAME` sets the servers of a context",
        "set-credentials": "`pinnace config set-context NAME` sets the certificate of a context",
        "unset": "`pinnace config set-context NAME` sets what a context has",
    },
    "set": {"env": _EDIT, "resources": _EDIT, "selector": _EDIT, "serviceaccount": _EDIT, "subject": _EDIT},
}
"""The subcommands of kubectl that a verb of pinnace does not have, each with a hint."""

_CONTEXT = "--context names a context, which has it: `pinnace config --help`"
_WHO = "a certificate says who you are; `pinnace auth can-i VERB KIND --as USER` says what others may"
_OBJECTS = "name the objects, as in deployment/web, or select them with -l"
_KUSTOMIZE = "`kustomize build DIR | pinnace apply -f -`"
_NOTHING = "leave it out: it would change nothing here"
_DRY_RUN = "`pinnace apply --server-side --dry-run=server` reports conflicts and writes nothing"
_LABELS = "`pinnace get KIND NAME --show-labels` shows them"

_OF_ANY = {
    "--allow-missing-template-keys": "leave it out: what is not there is empty",
    "--as": _WHO,
    "--as-group": _WHO,
    "--as-uid": _WHO,
    "--certificate-authority": _CONTEXT,
    "--chunk-size": _NOTHING,
    "--client-certificate": _CONTEXT,
    "--client-key": _CONTEXT,
    "--cluster": _CONTEXT,
    "--dry-run": "`pinnace apply -f FILE --dry-run=server` and `pinnace diff -f FILE` say what would become of a manifest",
    "--field-manager": _NOTHING,
    "--filename": _OBJECTS,
    "--insecure-skip-tls-verify": _CONTEXT,
    "--kubeconfig": "the environment variable PINNACE_CONFIG names the file",
    "--kustomize": _KUSTOMIZE,
    "--raw": "the API is gRPC, not HTTP; -o json prints what a client would be given",
    "--record": "`pinnace annotate KIND/NAME kubernetes.io/change-cause=TEXT`",
    "--request-timeout": "--timeout is for the whole command",
    "--template": "-o jsonpath=TEMPLATE",
    "--tls-server-name": _CONTEXT,
    "--token": _WHO,
    "--user": _CONTEXT,
    "-f": _OBJECTS,
    "-k": _KUSTOMIZE,
    "-s": "--server HOST:PORT",
}
FLAGS: Mapping[str, Mapping[str, str]] = {
    "annotate": {"--list": "`pinnace get KIND NAME -o jsonpath={.metadata.annotations}` shows them"},
    "apply": {
        "--force": "`pinnace delete -f FILE`, and apply it then",
        "--output": "`pinnace get -o yaml` shows it afterwards",
        "--prune": "`pinnace delete` what the manifests no longer have: by name, or with -l",
        "--selector": "it takes all that is in the manifests",
        "--wait": "`pinnace wait` waits until objects are as wanted",
        "-l": "it takes all that is in the manifests",
        "-o": "`pinnace get -o yaml` shows it afterwards",
    },
    "create deployment": {"--port": "write a manifest: --dry-run=client -o yaml prints one to begin with"},
    "describe": {"--show-events": "`pinnace get -o yaml` shows an object without its events"},
    "diff": {"--force-conflicts": _DRY_RUN, "--server-side": _DRY_RUN},
    "drain": {
        "--disable-eviction": "`pinnace delete pods -A --field-selector spec.nodeName=NODE` asks no disruption budget",
        "--dry-run": "`pinnace get pods -A --field-selector spec.nodeName=NODE` shows what there is to evict",
        "--skip-wait-for-delete-timeout": _NOTHING,
    },
    "get": {
        "--output-watch-events": "`pinnace get KIND -w -o json` has the deletionTimestamp of what goes",
        "--show-kind": "kinds are shown where there are several, as in pods,nodes",
        "--watch-only": "-w shows what there is first",
    },
    "label": {"--list": _LABELS},
    "rollout undo": {"--dry-run": "`pinnace rollout history deployment/NAME --revision N` shows what would come back"},
}
"""By the words of a verb."""


def flag_hint(verb: str, flag: str) -> str:
    """What to do instead of a flag of kubectl's; empty where that is not known. `verb`: "rollout undo"."""
    return FLAGS.get(verb, {}).get(flag) or _OF_ANY.get(flag, "")
