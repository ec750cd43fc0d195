"""The table of all faults. To add a fault, add a class and a row here; see `docs/design/chaos.md`."""

from pinnace.verification.chaos.cluster_under_test import ETCD_FOLLOWER, ETCD_LEADER, LEADER, STANDBY
from pinnace.verification.chaos.faults.attacks import BODIES, CALLERS, CONNECTIONS, READS, build_attack_maker
from pinnace.verification.chaos.faults.base import (
    FaultArea,
    FaultKind,
    FaultRequirement,
    apiservers,
    gateways,
    kubelets,
    proxies,
    role_targets,
)
from pinnace.verification.chaos.faults.clients import (
    CallFloodFault,
    ConnectionStorm,
    FailingPlugin,
    HangingPlugin,
    HostilePods,
    LeakingPlugin,
    SchedulerLeadershipTransfer,
    SecondControlPlane,
    StuckWatchers,
)
from pinnace.verification.chaos.faults.environment import (
    ETCD_CLIENTS,
    SCHEDULERS,
    SERVERS,
    ClockRate,
    ClockStep,
    ExpiredCertificates,
    FewDescriptors,
    FullAudit,
    FullLog,
    LittleMemory,
    LogRotation,
)
from pinnace.verification.chaos.faults.processes import (
    BlackHole,
    DuplicateProcess,
    Freeze,
    Kill,
    Partition,
    QuorumLoss,
    Reset,
    RollingRestart,
    Slow,
    Terminate,
)
from pinnace.verification.chaos.faults.services import KillProxy
from pinnace.verification.chaos.faults.storage import (
    EtcdCompaction,
    EtcdLeaderTransfer,
    FullEtcdDisk,
    NoSpaceAlarm,
    ReplaceMember,
)

schedulers = role_targets(LEADER, STANDBY)
leader, standby = role_targets(LEADER), role_targets(STANDBY)
etcd_leader, etcd_follower, etcd = role_targets(ETCD_LEADER), role_targets(ETCD_FOLLOWER), role_targets("etcd")

_PROCESSES = (
    FaultKind("kill-leader", "kill -9 of the leading scheduler", FaultArea.SCHEDULERS, leader, Kill, (0.2, 3.0), 4),
    FaultKind("kill-standby", "kill -9 of a standby scheduler", FaultArea.SCHEDULERS, standby, Kill, (0.2, 3.0)),
    FaultKind("kill-apiserver", "kill -9 of an API server", FaultArea.APISERVERS, apiservers, Kill, (0.2, 4.0), 4),
    FaultKind("kill-kubelet", "kill -9 of a kubelet", FaultArea.KUBELETS, kubelets, Kill, (0.2, 4.0)),
    FaultKind("kill-etcd-leader", "kill -9 of etcd's leader", FaultArea.ETCD, etcd_leader, Kill, (0.2, 4.0)),
    FaultKind(
        "kill-etcd-member",
        "kill -9 of an etcd follower",
        FaultArea.ETCD,
        etcd_follower,
        Kill,
        (0.2, 4.0),
        needs=(FaultRequirement.MEMBERS,),
    ),
    FaultKind(
        "freeze-leader", "SIGSTOP of the leading scheduler, then SIGCONT", FaultArea.SCHEDULERS, leader, Freeze, (0.3, 6.0), 4
    ),
    FaultKind(
        "freeze-standby", "SIGSTOP of a standby scheduler, then SIGCONT", FaultArea.SCHEDULERS, standby, Freeze, (0.3, 6.0)
    ),
    FaultKind(
        "freeze-apiserver", "SIGSTOP of an API server, then SIGCONT", FaultArea.APISERVERS, apiservers, Freeze, (0.3, 6.0), 4
    ),
    FaultKind("freeze-kubelet", "SIGSTOP of a kubelet, then SIGCONT", FaultArea.KUBELETS, kubelets, Freeze, (0.3, 6.0)),
    FaultKind("freeze-etcd-leader", "SIGSTOP of etcd's leader, then SIGCONT", FaultArea.ETCD, etcd_leader, Freeze, (0.3, 5.0)),
    FaultKind(
        "freeze-etcd-member",
        "SIGSTOP of an etcd follower, then SIGCONT",
        FaultArea.ETCD,
        etcd_follower,
        Freeze,
        (0.3, 5.0),
        needs=(FaultRequirement.MEMBERS,),
    ),
    FaultKind(
        "roll-apiserver", "an API server terminated and restarted", FaultArea.APISERVERS, apiservers, RollingRestart, (0.0, 0.0)
    ),
    FaultKind(
        "kill-gateway", "kill -9 of a gateway", FaultArea.GATEWAYS, gateways, Kill, (0.2, 3.0), 1, (FaultRequirement.GATEWAYS,)
    ),
    FaultKind(
        "roll-gateway",
        "a gateway terminated and restarted",
        FaultArea.GATEWAYS,
        gateways,
        RollingRestart,
        (0.0, 0.0),
        1,
        (FaultRequirement.GATEWAYS,),
    ),
    FaultKind(
        "kill-proxy",
        "kill -9 of the service proxy",
        FaultArea.PROXY,
        proxies,
        KillProxy,
        (0.2, 3.0),
        1,
        (FaultRequirement.PROXY,),
    ),
    FaultKind(
        "resign-leader", "the leading scheduler terminated: it resigns", FaultArea.SCHEDULERS, leader, Terminate, (0.2, 2.0)
    ),
    FaultKind(
        "twin-kubelet",
        "a second kubelet with the same name and nodes",
        FaultArea.KUBELETS,
        kubelets,
        DuplicateProcess,
        (3.0, 8.0),
        1,
    ),
)
_ETCD = (
    FaultKind(
        "etcd-quorum",
        "two of three etcd members killed or frozen",
        FaultArea.ALL,
        etcd,
        QuorumLoss,
        (2.0, 8.0),
        1,
        needs=(FaultRequirement.MEMBERS,),
    ),
    FaultKind(
        "etcd-transfer",
        "etcd's leadership transferred to another member",
        FaultArea.ETCD,
        etcd,
        EtcdLeaderTransfer,
        (0.0, 0.0),
        1,
        needs=(FaultRequirement.MEMBERS,),
    ),
    FaultKind(
        "replace-etcd-member",
        "an etcd member removed, and added again without its data",
        FaultArea.ETCD,
        etcd_follower,
        ReplaceMember,
        (1.0, 4.0),
        1,
        needs=(FaultRequirement.MEMBERS,),
    ),
    FaultKind(
        "full-disk",
        "a full disk of an etcd member",
        FaultArea.ETCD,
        etcd,
        FullEtcdDisk,
        (2.0, 6.0),
        1,
        needs=(FaultRequirement.DISK,),
    ),
    FaultKind("compact", "history compacted up to the recorded revision", FaultArea.NONE, etcd, EtcdCompaction, (0.0, 0.0)),
    FaultKind("nospace", "etcd's NOSPACE alarm raised, then cleared", FaultArea.ETCD, etcd, NoSpaceAlarm, (1.0, 4.0), 1),
)
_NETWORK = (
    FaultKind(
        "partition-scheduler",
        "a scheduler cut off from the API servers",
        FaultArea.SCHEDULERS,
        schedulers,
        Partition,
        (0.5, 8.0),
    ),
    FaultKind(
        "partition-kubelet", "a kubelet cut off from the API servers", FaultArea.KUBELETS, kubelets, Partition, (0.5, 8.0)
    ),
    FaultKind(
        "partition-apiserver", "an API server cut off from etcd", FaultArea.APISERVERS, apiservers, Partition, (0.5, 8.0)
    ),
    FaultKind(
        "blackhole-scheduler", "a scheduler's connection drops packets", FaultArea.SCHEDULERS, schedulers, BlackHole, (3.0, 8.0)
    ),
    FaultKind("blackhole-kubelet", "a kubelet's connection drops packets", FaultArea.KUBELETS, kubelets, BlackHole, (3.0, 8.0)),
    FaultKind(
        "blackhole-apiserver", "a connection to etcd drops packets", FaultArea.APISERVERS, apiservers, BlackHole, (3.0, 8.0)
    ),
    FaultKind(
        "slow-scheduler", "delay between a scheduler and the API servers", FaultArea.SCHEDULERS, schedulers, Slow, (1.0, 5.0), 1
    ),
    FaultKind("slow-kubelet", "delay between a kubelet and the API servers", FaultArea.KUBELETS, kubelets, Slow, (1.0, 5.0), 1),
    FaultKind("slow-apiserver", "delay between an API server and etcd", FaultArea.APISERVERS, apiservers, Slow, (1.0, 5.0), 1),
    FaultKind(
        "reset-scheduler",
        "a scheduler's connections reset, and refused for a while",
        FaultArea.SCHEDULERS,
        schedulers,
        Reset,
        (0.0, 2.0),
    ),
    FaultKind(
        "reset-kubelet",
        "a kubelet's connections reset, and refused for a while",
        FaultArea.KUBELETS,
        kubelets,
        Reset,
        (0.0, 2.0),
    ),
    FaultKind(
        "reset-apiserver",
        "connections to etcd reset, and refused for a while",
        FaultArea.APISERVERS,
        apiservers,
        Reset,
        (0.0, 2.0),
    ),
)
_LIMITS = (
    FaultKind(
        "few-descriptors-scheduler",
        "a scheduler that cannot open connections",
        FaultArea.SCHEDULERS,
        schedulers,
        FewDescriptors,
        (1.0, 5.0),
        1,
        needs=(FaultRequirement.LIMITS,),
    ),
    FaultKind(
        "few-descriptors-apiserver",
        "an API server that cannot open connections",
        FaultArea.APISERVERS,
        apiservers,
        FewDescriptors,
        (1.0, 5.0),
        1,
        needs=(FaultRequirement.LIMITS,),
    ),
    FaultKind(
        "little-memory-scheduler",
        "a scheduler that cannot allocate memory",
        FaultArea.SCHEDULERS,
        schedulers,
        LittleMemory,
        (2.0, 6.0),
        1,
        needs=(FaultRequirement.LIMITS,),
    ),
    FaultKind(
        "little-memory-apiserver",
        "an API server that cannot allocate memory",
        FaultArea.APISERVERS,
        apiservers,
        LittleMemory,
        (2.0, 6.0),
        1,
        needs=(FaultRequirement.LIMITS,),
    ),
    FaultKind(
        "full-log-apiserver",
        "an API server whose log cannot be written",
        FaultArea.APISERVERS,
        apiservers,
        FullLog,
        (1.0, 4.0),
        1,
        needs=(FaultRequirement.DEV_FULL,),
    ),
    FaultKind(
        "full-log-scheduler",
        "a scheduler whose log cannot be written",
        FaultArea.SCHEDULERS,
        schedulers,
        FullLog,
        (1.0, 4.0),
        1,
        needs=(FaultRequirement.DEV_FULL,),
    ),
    FaultKind(
        "full-audit",
        "an API server whose audit log cannot be written",
        FaultArea.APISERVERS,
        apiservers,
        FullAudit,
        (2.0, 5.0),
        1,
        needs=(FaultRequirement.DEV_FULL,),
    ),
)
_CERTIFICATES = (
    FaultKind(
        "rotate-certificates",
        "all certificates replaced, all links reset",
        FaultArea.ALL,
        role_targets("all"),
        LogRotation,
        (0.0, 0.0),
        1,
    ),
    FaultKind(
        "expire-scheduler-certificate",
        "the schedulers' certificate expires, and is replaced",
        FaultArea.SCHEDULERS,
        role_targets(SCHEDULERS),
        ExpiredCertificates,
        (1.0, 4.0),
        1,
    ),
    FaultKind(
        "expire-kubelet-certificate",
        "a kubelet's certificate expires, and is replaced",
        FaultArea.KUBELETS,
        kubelets,
        ExpiredCertificates,
        (1.0, 4.0),
        1,
    ),
    FaultKind(
        "expire-apiserver-certificate",
        "the API servers' certificate expires, and is replaced",
        FaultArea.ALL,
        role_targets(SERVERS),
        ExpiredCertificates,
        (1.0, 3.0),
        1,
    ),
    FaultKind(
        "expire-etcd-client-certificate",
        "the API servers' certificate for etcd expires, and is replaced",
        FaultArea.ALL,
        role_targets(ETCD_CLIENTS),
        ExpiredCertificates,
        (1.0, 3.0),
        1,
    ),
)
_CLOCKS = tuple(
    FaultKind(
        f"{name}-{component}",
        f"a {component}'s wall clock {how}",
        area,
        targets,
        make,
        (5.0, 10.0),
        1,
        (FaultRequirement.FAKETIME,),
    )
    for name, how, make in (("clock", "an hour off", ClockStep), ("clock-rate", "too fast or too slow", ClockRate))
    for component, area, targets in (
        ("scheduler", FaultArea.SCHEDULERS, schedulers),
        ("apiserver", FaultArea.APISERVERS, apiservers),
        ("kubelet", FaultArea.KUBELETS, kubelets),
    )
)
_HARM = (
    FaultKind(
        "failing-plugin",
        "a plugin that raises exceptions that end tasks and processes",
        FaultArea.SCHEDULERS,
        leader,
        FailingPlugin,
        (4.0, 8.0),
        1,
    ),
    FaultKind("hanging-plugin", "a plugin that blocks for seconds", FaultArea.SCHEDULERS, leader, HangingPlugin, (3.0, 6.0), 1),
    FaultKind(
        "leaking-plugin",
        "a plugin that exhausts the leading scheduler's memory",
        FaultArea.SCHEDULERS,
        leader,
        LeakingPlugin,
        (3.0, 6.0),
        1,
        (FaultRequirement.LIMITS,),
    ),
)
_STRANGERS = (
    FaultKind(
        "hostile-pods",
        "valid pods with the maximum cost",
        FaultArea.ALL,
        role_targets("scheduler"),
        HostilePods,
        (7.0, 9.0),
        2,
    ),
    FaultKind(
        "second-control-plane",
        "an API server of another cluster on the same etcd",
        FaultArea.NONE,
        role_targets("apiserver-0"),
        SecondControlPlane,
        (0.0, 0.0),
        1,
    ),
)
_CROWDS = (
    FaultKind(
        "flood", "a caller without permissions floods all services", FaultArea.ALL, apiservers, CallFloodFault, (6.0, 9.0), 2
    ),
    FaultKind(
        "transfer-leader",
        "leadership transferred to another scheduler",
        FaultArea.SCHEDULERS,
        leader,
        SchedulerLeadershipTransfer,
        (0.0, 0.0),
    ),
    FaultKind("stuck-watchers", "watchers that stop reading", FaultArea.NONE, apiservers, StuckWatchers, (4.0, 10.0), 1),
    FaultKind(
        "storm",
        "many clients that connect, list and watch simultaneously",
        FaultArea.NONE,
        apiservers,
        ConnectionStorm,
        (0.0, 0.0),
        1,
    ),
)
_ATTACKS = tuple(
    FaultKind(
        f"attack-{name}", what, FaultArea.ALL, gateways, build_attack_maker(attacks), seconds, 1, (FaultRequirement.GATEWAYS,)
    )
    for name, what, attacks, seconds in (
        ("bodies", "bodies for a gateway that are large, hostile or incomplete", BODIES, (7.0, 9.0)),
        ("reads", "expensive reads from a gateway, and answers that nobody receives", READS, (7.0, 9.0)),
        ("callers", "many requests to a gateway that it refuses", CALLERS, (7.0, 9.0)),
        ("connections", "connections to a gateway that send nothing", CONNECTIONS, (16.0, 17.0)),
    )
)
KINDS = {
    kind.name: kind
    for kind in (*_PROCESSES, *_ETCD, *_NETWORK, *_LIMITS, *_CERTIFICATES, *_CLOCKS, *_HARM, *_STRANGERS, *_CROWDS, *_ATTACKS)
}
DOUBLING = ("twin-kubelet",)
"""For records.Run: faults that run the same nodes in two processes."""
_KUBELETS = tuple(kind.name for kind in KINDS.values() if kind.area is FaultArea.KUBELETS)
_GATEWAYS = tuple(kind.name for kind in KINDS.values() if kind.area is FaultArea.GATEWAYS)
ATTACKS = tuple(kind.name for kind in _ATTACKS)
"""For records.Run: faults in which one user of a gateway harms others."""
HARMLESS = (
    "compact", "stuck-watchers", "second-control-plane", "failing-plugin", "hostile-pods", "flood", "kill-proxy",
    *_KUBELETS, *_GATEWAYS, *ATTACKS,
)  # fmt: skip
"""For records.Run: faults that do not affect elections."""
HOSTILE = ("hostile-pods", "flood")
"""For records.Run: faults in which one user harms others."""
TOLERATED = ("compact", "stuck-watchers", "failing-plugin", *HOSTILE, *ATTACKS)
"""For records.Run: faults that do not excuse delays."""
OBSERVING = (
    "full-disk",
    "replace-etcd-member",
    "full-log-apiserver",
    "full-log-scheduler",
    "full-audit",
    "second-control-plane",
    "failing-plugin",
    "hanging-plugin",
    "flood",
    "kill-proxy",
    *ATTACKS,
)
"""For records.Run: faults that read values from their targets."""
