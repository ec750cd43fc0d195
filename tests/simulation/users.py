"""Who the processes of a simulated cluster are, as their certificates would say."""

from pinnace.api.names import NodeNames
from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.auth.authentication import MASTERS, NODES_GROUP, User
from tests.simulation.process import Process

FLEET = "fleet"


def user_of(process: Process) -> User:
    """By the beginning of its name. Whoever is no component of the cluster is an administrator."""
    match process.name.partition("-")[0]:
        case "scheduler":
            return User("system:kube-scheduler", (AUTHENTICATED,))
        case "kubelet" | "twin":
            return User(f"system:node:{FLEET}", (NODES_GROUP, AUTHENTICATED), NodeNames.parse([f"{FLEET}-*"]))
        case _:
            return User("kubernetes-admin", (MASTERS, AUTHENTICATED))
