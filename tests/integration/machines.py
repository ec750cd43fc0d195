"""Machines that are network namespaces with addresses of one network, joined by a bridge. Requires root and iproute2.

    alpha 10.9.0.1 --+
    beta  10.9.0.2 --+-- bridge in the namespace "switch"
    gamma 10.9.0.3 --+
    delta 10.9.0.4 --+      without certificates: it may join
    admin 10.9.0.9 --+      the clients of the tests

A machine that is cut off has a link without a bridge: its processes run on, packets are swallowed, and nothing is reset.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/several-machines.md"
ADDRESSES = {"alpha": "10.9.0.1", "beta": "10.9.0.2", "gamma": "10.9.0.3"}
JOINING = {"delta": "10.9.0.4"}
"""A machine that is not part of the cluster."""
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
COMPONENTS = ("etcd", "apiserver", "scheduler", "controllers", "gateway", "kubelet")


def read_blocks(document: Path = DOCUMENT) -> dict[str, str]:
    """Return the shell blocks of the document by their names."""
    return dict(re.findall(r"^```sh (\w+)\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL))


def can_make_namespaces() -> bool:
    return os.geteuid() == 0 and subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode == 0


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)


@dataclass
class Machine:
    name: str
    address: str
    namespace: str
    switch: str
    link: str
    folder: Path
    pki: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    is_cut_off: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the blocks."""
        return {"NAME": self.name, "IP": self.address, "PKI": str(self.pki), "DATA": str(self.folder), "PATH": PATH}

    def execute(self, block: str, **variables: str) -> str:
        """Execute a block to its end, and return what it prints."""
        command = ["ip", "netns", "exec", self.namespace, "bash", "-ec", read_blocks()[block]]
        environment = os.environ | self.variables | variables | {"NO_COLOR": "1"}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (block, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def start(self, component: str, *, environment: Mapping[str, str] | None = None) -> None:
        """Execute the block of this component."""
        with (self.folder / f"{component}.log").open("ab") as log:
            self.running[component] = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "bash", "-ec", read_blocks()[component]],
                cwd=self.folder,
                env=os.environ | self.variables | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, component: str) -> str:
        return (self.folder / f"{component}.log").read_text(errors="replace")

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self.running.pop(component)
        process.send_signal(number)
        process.wait(20)

    def cut_off(self) -> None:
        """Swallow all packets from and to the machine."""
        self.is_cut_off = True
        ip("-n", self.switch, "link", "set", self.link, "nomaster")

    def join_again(self) -> None:
        ip("-n", self.switch, "link", "set", self.link, "master", "bridge0")
        self.is_cut_off = False

    def block(self, other: "Machine") -> None:
        """Swallow all packets between two machines."""
        for source, target in ((self, other), (other, self)):
            ip("-n", source.namespace, "route", "add", "blackhole", f"{target.address}/32")

    def unblock(self, other: "Machine") -> None:
        for source, target in ((self, other), (other, self)):
            ip("-n", source.namespace, "route", "delete", "blackhole", f"{target.address}/32")


@dataclass
class Site:
    machines: Sequence[Machine]
    joining: Machine
    """The machine of JOINING."""
    admin: str
    pki: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the administrator's commands."""
        return os.environ | {"KUBECONFIG": str(self.pki / "admin.conf"), "PATH": PATH, "NO_COLOR": "1"}

    def command(self, *command: str) -> list[str]:
        """Return the command in the administrator's namespace."""
        return ["ip", "netns", "exec", self.admin, *command]

    def run(self, *command: str, timeout: float = 60) -> str:
        """Run a command as the administrator, and return what it prints."""
        inside = self.command(*command)
        done = subprocess.run(inside, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout


@contextmanager
def make_site(folder: Path) -> Iterator[Site]:
    """Three machines with certificates and without processes. At the end, all processes are killed."""
    suffix = f"{os.getpid() % 1_000_000:06d}"
    switch, admin = f"switch{suffix}", f"admin{suffix}"
    pki = folder / "pki"
    machines = list[Machine]()
    namespaces = list[str]()
    try:
        namespaces.append(switch)
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge0", "up")
        for number, (name, address) in enumerate([*ADDRESSES.items(), *JOINING.items(), ("admin", "10.9.0.9")]):
            namespace, link = f"{name}{suffix}", f"link{number}"
            namespaces.append(namespace)
            ip("netns", "add", namespace)
            ip("-n", switch, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("-n", switch, "link", "set", link, "master", "bridge0", "up")
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", namespace, "link", "set", device, "up")
            if name in ADDRESSES or name in JOINING:
                (folder / name).mkdir()
                machines.append(Machine(name, address, namespace, switch, link, folder / name, pki))
        subprocess.run(
            ["bash", "-ec", read_blocks()["pki"]],
            cwd=folder,
            env=os.environ | {"PATH": PATH},
            check=True,
            capture_output=True,
            timeout=60,
        )
        yield Site(machines[:-1], machines[-1], admin, pki)
    finally:
        for machine in machines:
            for process in machine.running.values():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        for namespace in namespaces:
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False, timeout=10)
