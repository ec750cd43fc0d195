"""The table of all faults. To add a fault, add a class and a row here; see `docs/design/chaos.md`."""

from pinnace.verification.chaos.faults.attacks import BODIES, CALLERS, CONNECTIONS, READS, attacking
from pinnace.verification.chaos.faults.base import Area, Kind, Need, apiservers, gateways, kubelets, proxies, roles
from pinnace.verification.chaos.faults.clients import (
    FailingPlugin,
    Flood,
    Handover,
    HangingPlugin,
    HostilePods,
    LeakingPlugin,
    SecondControlPlane,
    Storm,
    StuckWatchers,
)
from pinnace.verification.chaos.faults.environment import (
    ETCD_CLIENTS,
    SCHEDULERS,
    SERVERS,
    ClockRate,
    ClockStep,
    Expire,
    FewDescriptors,
    FullAudit,
    FullLog,
    LittleMemory,
    Rotate,
)
from pinnace.verification.chaos.faults.processes import (
    BlackHole,
    Freeze,
    Kill,
    Partition,
    Quorum,
    Reset,
    Roll,
    Slow,
    Terminate,
    Twin,
)
from pinnace.verification.chaos.faults.services import KillProxy
from pinnace.verification.chaos.faults.storage import Compact, FullDisk, NoSpace, ReplaceMember, Transfer
from pinnace.verification.chaos.world import ETCD_FOLLOWER, ETCD_LEADER, LEADER, STANDBY

schedulers = roles(LEADER, STANDBY)
leader, standby = roles(LEADER), roles(STANDBY)
etcd_leader, etcd_follower, etcd = roles(ETCD_LEADER), roles(ETCD_FOLLOWER), roles("etcd")

_PROCESSES = (
    Kind("kill-leader", "kill -9 of the leading scheduler", Area.SCHEDULERS, leader, Kill, (0.2, 3.0), 4),
    Kind("kill-standby", "kill -9 of a standby scheduler", Area.SCHEDULERS, standby, Kill, (0.2, 3.0)),
    Kind("kill-apiserver", "kill -9 of an API server", Area.APISERVERS, apiservers, Kill, (0.2, 4.0), 4),
    Kind("kill-kubelet", "kill -9 of a kubelet", Area.KUBELETS, kubelets, Kill, (0.2, 4.0)),
    Kind("kill-etcd-leader", "kill -9 of etcd's leader", Area.ETCD, etcd_leader, Kill, (0.2, 4.0)),
    Kind(
        "kill-etcd-member",
        "kill -9 of an etcd follower",
        Area.ETCD,
        etcd_follower,
        Kill,
        (0.2, 4.0),
        needs=(Need.MEMBERS,),
    ),
    Kind("freeze-leader", "SIGSTOP of the leading scheduler, then SIGCONT", Area.SCHEDULERS, leader, Freeze, (0.3, 6.0), 4),
    Kind("freeze-standby", "SIGSTOP of a standby scheduler, then SIGCONT", Area.SCHEDULERS, standby, Freeze, (0.3, 6.0)),
    Kind("freeze-apiserver", "SIGSTOP of an API server, then SIGCONT", Area.APISERVERS, apiservers, Freeze, (0.3, 6.0), 4),
    Kind("freeze-kubelet", "SIGSTOP of a kubelet, then SIGCONT", Area.KUBELETS, kubelets, Freeze, (0.3, 6.0)),
    Kind("freeze-etcd-leader", "SIGSTOP of etcd's leader, then SIGCONT", Area.ETCD, etcd_leader, Freeze, (0.3, 5.0)),
    Kind(
        "freeze-etcd-member",
        "SIGSTOP of an etcd follower, then SIGCONT",
        Area.ETCD,
        etcd_follower,
        Freeze,
        (0.3, 5.0),
        needs=(Need.MEMBERS,),
    ),
    Kind("roll-apiserver", "an API server terminated and restarted", Area.APISERVERS, apiservers, Roll, (0.0, 0.0)),
    Kind("kill-gateway", "kill -9 of a gateway", Area.GATEWAYS, gateways, Kill, (0.2, 3.0), 1, (Need.GATEWAYS,)),
    Kind(
        "roll-gateway",
        "a gateway terminated and restarted",
        Area.GATEWAYS,
        gateways,
        Roll,
        (0.0, 0.0),
        1,
        (Need.GATEWAYS,),
    ),
    Kind("kill-proxy", "kill -9 of the service proxy", Area.PROXY, proxies, KillProxy, (0.2, 3.0), 1, (Need.PROXY,)),
    Kind("resign-leader", "the leading scheduler terminated: it resigns", Area.SCHEDULERS, leader, Terminate, (0.2, 2.0)),
    Kind("twin-kubelet", "a second kubelet with the same name and nodes", Area.KUBELETS, kubelets, Twin, (3.0, 8.0), 1),
)
_ETCD = (
    Kind(
        "etcd-quorum",
        "two of three etcd members killed or frozen",
        Area.ALL,
        etcd,
        Quorum,
        (2.0, 8.0),
        1,
        needs=(Need.MEMBERS,),
    ),
    Kind(
        "etcd-transfer",
        "etcd's leadership transferred to another member",
        Area.ETCD,
        etcd,
        Transfer,
        (0.0, 0.0),
        1,
        needs=(Need.MEMBERS,),
    ),
    Kind(
        "replace-etcd-member",
        "an etcd member removed, and added again without its data",
        Area.ETCD,
        etcd_follower,
        ReplaceMember,
        (1.0, 4.0),
        1,
        needs=(Need.MEMBERS,),
    ),
    Kind("full-disk", "a full disk of an etcd member", Area.ETCD, etcd, FullDisk, (2.0, 6.0), 1, needs=(Need.DISK,)),
    Kind("compact", "history compacted up to the recorded revision", Area.NONE, etcd, Compact, (0.0, 0.0)),
    Kind("nospace", "etcd's NOSPACE alarm raised, then cleared", Area.ETCD, etcd, NoSpace, (1.0, 4.0), 1),
)
_NETWORK = (
    Kind("partition-scheduler", "a scheduler cut off from the API servers", Area.SCHEDULERS, schedulers, Partition, (0.5, 8.0)),
    Kind("partition-kubelet", "a kubelet cut off from the API servers", Area.KUBELETS, kubelets, Partition, (0.5, 8.0)),
    Kind("partition-apiserver", "an API server cut off from etcd", Area.APISERVERS, apiservers, Partition, (0.5, 8.0)),
    Kind("blackhole-scheduler", "a scheduler's connection drops packets", Area.SCHEDULERS, schedulers, BlackHole, (3.0, 8.0)),
    Kind("blackhole-kubelet", "a kubelet's connection drops packets", Area.KUBELETS, kubelets, BlackHole, (3.0, 8.0)),
    Kind("blackhole-apiserver", "a connection to etcd drops packets", Area.APISERVERS, apiservers, BlackHole, (3.0, 8.0)),
    Kind("slow-scheduler", "delay between a scheduler and the API servers", Area.SCHEDULERS, schedulers, Slow, (1.0, 5.0), 1),
    Kind("slow-kubelet", "delay between a kubelet and the API servers", Area.KUBELETS, kubelets, Slow, (1.0, 5.0), 1),
    Kind("slow-apiserver", "delay between an API server and etcd", Area.APISERVERS, apiservers, Slow, (1.0, 5.0), 1),
    Kind(
        "reset-scheduler",
        "a scheduler's connections reset, and refused for a while",
        Area.SCHEDULERS,
        schedulers,
        Reset,
        (0.0, 2.0),
    ),
    Kind("reset-kubelet", "a kubelet's connections reset, and refused for a while", Area.KUBELETS, kubelets, Reset, (0.0, 2.0)),
    Kind(
        "reset-apiserver", "connections to etcd reset, and refused for a while", Area.APISERVERS, apiservers, Reset, (0.0, 2.0)
    ),
)
_LIMITS = (
    Kind(
        "few-descriptors-scheduler",
        "a scheduler that cannot open connections",
        Area.SCHEDULERS,
        schedulers,
        FewDescriptors,
        (1.0, 5.0),
        1,
        needs=(Need.LIMITS,),
    ),
    Kind(
        "few-descriptors-apiserver",
        "an API server that cannot open connections",
        Area.APISERVERS,
        apiservers,
        FewDescriptors,
        (1.0, 5.0),
        1,
        needs=(Need.LIMITS,),
    ),
    Kind(
        "little-memory-scheduler",
        "a scheduler that cannot allocate memory",
        Area.SCHEDULERS,
        schedulers,
        LittleMemory,
        (2.0, 6.0),
        1,
        needs=(Need.LIMITS,),
    ),
    Kind(
        "little-memory-apiserver",
        "an API server that cannot allocate memory",
        Area.APISERVERS,
        apiservers,
        LittleMemory,
        (2.0, 6.0),
        1,
        needs=(Need.LIMITS,),
    ),
    Kind(
        "full-log-apiserver",
        "an API server whose log cannot be written",
        Area.APISERVERS,
        apiservers,
        FullLog,
        (1.0, 4.0),
        1,
        needs=(Need.DEV_FULL,),
    ),
    Kind(
        "full-log-scheduler",
        "a scheduler whose log cannot be written",
        Area.SCHEDULERS,
        schedulers,
        FullLog,
        (1.0, 4.0),
        1,
        needs=(Need.DEV_FULL,),
    ),
    Kind(
        "full-audit",
        "an API server whose audit log cannot be written",
        Area.APISERVERS,
        apiservers,
        FullAudit,
        (2.0, 5.0),
        1,
        needs=(Need.DEV_FULL,),
    ),
)
_CERTIFICATES = (
    Kind("rotate-certificates", "all certificates replaced, all links reset", Area.ALL, roles("all"), Rotate, (0.0, 0.0), 1),
    Kind(
        "expire-scheduler-certificate",
        "the schedulers' certificate expires, and is replaced",
        Area.SCHEDULERS,
        roles(SCHEDULERS),
        Expire,
        (1.0, 4.0),
        1,
    ),
    Kind(
        "expire-kubelet-certificate",
        "a kubelet's certificate expires, and is replaced",
        Area.KUBELETS,
        kubelets,
        Expire,
        (1.0, 4.0),
        1,
    ),
    Kind(
        "expire-apiserver-certificate",
        "the API servers' certificate expires, and is replaced",
        Area.ALL,
        roles(SERVERS),
        Expire,
        (1.0, 3.0),
        1,
    ),
    Kind(
        "expire-etcd-client-certificate",
        "the API servers' certificate for etcd expires, and is replaced",
        Area.ALL,
        roles(ETCD_CLIENTS),
        Expire,
        (1.0, 3.0),
        1,
    ),
)
_CLOCKS = tuple(
    Kind(
        f"{name}-{component}",
        f"a {component}'s wall clock {how}",
        area,
        targets,
        make,
        (5.0, 10.0),
        1,
        (Need.FAKETIME,),
    )
    for name, how, make in (("clock", "an hour off", ClockStep), ("clock-rate", "too fast or too slow", ClockRate))
    for component, area, targets in (
        ("scheduler", Area.SCHEDULERS, schedulers),
        ("apiserver", Area.APISERVERS, apiservers),
        ("kubelet", Area.KUBELETS, kubelets),
    )
)
_HARM = (
    Kind(
        "failing-plugin",
        "a plugin that raises exceptions that end tasks and processes",
        Area.SCHEDULERS,
        leader,
        FailingPlugin,
        (4.0, 8.0),
        1,
    ),
    Kind("hanging-plugin", "a plugin that blocks for seconds", Area.SCHEDULERS, leader, HangingPlugin, (3.0, 6.0), 1),
    Kind(
        "leaking-plugin",
        "a plugin that exhausts the leading scheduler's memory",
        Area.SCHEDULERS,
        leader,
        LeakingPlugin,
        (3.0, 6.0),
        1,
        (Need.LIMITS,),
    ),
)
_STRANGERS = (
    Kind(
        "hostile-pods",
        "valid pods with the maximum cost",
        Area.ALL,
        roles("scheduler"),
        HostilePods,
        (7.0, 9.0),
        2,
    ),
    Kind(
        "second-control-plane",
        "an API server of another cluster on the same etcd",
        Area.NONE,
        roles("apiserver-0"),
        SecondControlPlane,
        (0.0, 0.0),
        1,
    ),
)
_CROWDS = (
    Kind("flood", "a caller without permissions floods all services", Area.ALL, apiservers, Flood, (6.0, 9.0), 2),
    Kind("transfer-leader", "leadership transferred to another scheduler", Area.SCHEDULERS, leader, Handover, (0.0, 0.0)),
    Kind("stuck-watchers", "watchers that stop reading", Area.NONE, apiservers, StuckWatchers, (4.0, 10.0), 1),
    Kind(
        "storm",
        "many clients that connect, list and watch simultaneously",
        Area.NONE,
        apiservers,
        Storm,
        (0.0, 0.0),
        1,
    ),
)
_ATTACKS = tuple(
    Kind(f"attack-{name}", what, Area.ALL, gateways, attacking(attacks), seconds, 1, (Need.GATEWAYS,))
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
_KUBELETS = tuple(kind.name for kind in KINDS.values() if kind.area is Area.KUBELETS)
_GATEWAYS = tuple(kind.name for kind in KINDS.values() if kind.area is Area.GATEWAYS)
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
