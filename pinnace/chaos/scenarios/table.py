"""All scenarios, in the order in which a person would try them."""

from pinnace.chaos.scenarios.base import Scenario
from pinnace.chaos.scenarios.harm import FloodWithoutRights, Hostile
from pinnace.chaos.scenarios.kubelets import DuplicateKubelet
from pinnace.chaos.scenarios.leaders import FreezeLeader, KillLeader, PartitionLeader
from pinnace.chaos.scenarios.restore import Restore
from pinnace.chaos.scenarios.servers import KillApiServer
from pinnace.chaos.scenarios.stores import CompactHistory, EtcdLeader, EtcdQuorum, FullDisk
from pinnace.chaos.scenarios.writers import RacingWriters

SCENARIOS: dict[str, type[Scenario]] = {
    KillLeader.name: KillLeader,
    FreezeLeader.name: FreezeLeader,
    PartitionLeader.name: PartitionLeader,
    KillApiServer.name: KillApiServer,
    EtcdLeader.name: EtcdLeader,
    EtcdQuorum.name: EtcdQuorum,
    FullDisk.name: FullDisk,
    CompactHistory.name: CompactHistory,
    Restore.name: Restore,
    DuplicateKubelet.name: DuplicateKubelet,
    FloodWithoutRights.name: FloodWithoutRights,
    Hostile.name: Hostile,
    RacingWriters.name: RacingWriters,
}
