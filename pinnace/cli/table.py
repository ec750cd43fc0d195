"""The table of all verbs: which are ours, and which are kubectl's.

The module is imported before each command and imports nothing, because kubectl's verbs shall start at once.
"""

OURS = {
    "A local cluster": {
        "up": "Start a local cluster, or resume an existing one.",
        "status": "Show the processes of a local cluster.",
        "stop": "Stop a local cluster and keep its data.",
        "start": "Start the stopped processes of a local cluster.",
        "kill": "Kill processes of a local cluster, or send another signal.",
        "restart": "Restart processes of a local cluster, and renew its certificates.",
        "down": "Stop a local cluster and delete it with all its objects.",
        "backup": "Write a running local cluster to one file.",
        "restore": "Create a local cluster from a backup.",
        "snapshot": "Save the objects of a cluster as a file, or restore them elsewhere.",
        "doctor": "Diagnose a cluster and this client.",
    },
    "Scheduling, nodes and leaders": {
        "why": "Explain why a pod is on its node, or why it is pending.",
        "trace": "Show the steps of a pod from its creation to its current status.",
        "node": "Add virtual nodes, or inject node failures.",
        "pod": "Make pods crash.",
        "leader": "Show the leader of an election.",
        "sched": "Show the queue or the cache of the leading scheduler.",
        "etcd": "Show the keys of etcd, with decoded values.",
    },
    "Scheduling policies": {
        "plugin": "Write and check plugins of the scheduler.",
        "study": "Compare scheduling policies on traces, without a cluster.",
    },
    "Views, faults and measurements": {
        "ui": "Open the timeline of a cluster in a browser.",
        "timeline": "Record a timeline, or open recordings.",
        "demo": "Demonstrate failover on a real cluster.",
        "lab": "List and start labs, and check their steps.",
        "bench": "Measure pinnace on this machine.",
        "chaos": "Inject faults into a cluster and check the history.",
        "check": "Check the recorded history of a run.",
    },
    "Other": {
        "pki": "Create the certificates of a cluster.",
        "token": "Manage bootstrap tokens, with which machines join a cluster.",
        "signer": "Sign the certificates of machines that join.",
        "join": "Get the certificate of a kubelet for this machine.",
        "version": "Print the versions of kubectl, this client and the servers.",
        "completion": "Output a shell completion script.",
    },
}
"""Our verbs by section, with their summaries."""

LOGS = "logs"
"""kubectl's, except for the log of a component of the local cluster."""
KUBECTL = "kubectl"
"""`pinnace kubectl ARGS...` hands everything to kubectl."""

KUBECTLS = {
    "Basic": "create expose run set explain get edit delete",
    "Deploy": "rollout scale autoscale",
    "Cluster management": "certificate cluster-info top cordon uncordon drain taint",
    "Troubleshooting": "describe logs attach exec port-forward proxy cp auth debug events",
    "Advanced": "diff apply patch replace wait kustomize",
    "Settings": "label annotate",
    "Other": "api-resources api-versions config kuberc",
}
"""kubectl's verbs by its own groups, without those that are ours (`version`, `completion`, `plugin`)."""

HIDDEN = "alpha options"
"""Verbs that kubectl has and its help does not list."""

LOCAL = "completion config kuberc kustomize options plugin"
"""kubectl's verbs that need no cluster."""

OUR_VERBS = frozenset(verb for section in OURS.values() for verb in section)
KUBECTL_VERBS = frozenset(f"{' '.join(KUBECTLS.values())} {HIDDEN}".split())
LOCAL_VERBS = frozenset(LOCAL.split())

_VALUED = """
    --as --as-group --as-uid --as-user-extra --cache-dir --certificate-authority --client-certificate --client-key --cluster
    --context --kubeconfig --kuberc --log-flush-frequency -n --namespace --password --profile --profile-output --proxy-url
    --request-timeout -s --server --timeout --tls-server-name --token --user --username --vmodule
"""
VALUED = frozenset(_VALUED.split())
"""Global flags of kubectl, and ours, that need a value."""
_OF_LOGS = "-c --container --limit-bytes --max-log-requests --pod-running-timeout -l --selector --since --since-time --tail"
LOGS_VALUED = VALUED | frozenset(_OF_LOGS.split())
"""Flags of `logs` that need a value."""


def find_first_argument(words: list[str], valued: frozenset[str] = VALUED) -> int:
    """Return the index of the first word that is neither a flag nor the value of a flag, such as the verb. Without one it is
    the number of words."""
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return len(words)
        if not word.startswith("-") or word == "-":
            return index
        following = words[index + 1 : index + 2]
        takes = word in valued or (word in ("-v", "--v") and following and following[0].isdecimal())
        index += 2 if takes else 1
    return len(words)
