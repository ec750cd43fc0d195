"""The shell of simulated containers: exit codes and output are those of BusyBox, as far as it goes."""

import pytest

from pinnace.api.core_v1_pb2 import Pod, VolumeMount
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import ContainerView
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot, SimulatedMachine
from pinnace.kubelet.runtime.simulated_programs import BUILTINS, PROGRAMS
from pinnace.kubelet.runtime.simulated_shell import Shell
from tests.builders import make_pod


class Pipes:
    """Input that is all there; time passes at once."""

    terminal = False

    def __init__(self, stdin: str = "") -> None:
        self._lines = stdin.splitlines(keepends=True)
        self.out = self.error = ""
        self.slept = 0.0

    async def read(self) -> bytes:
        return self._lines.pop(0).encode() if self._lines else b""

    async def read_line(self) -> str | None:
        return self._lines.pop(0).removesuffix("\n") if self._lines else None

    async def write(self, text: str) -> None:
        self.out += text

    async def write_bytes(self, data: bytes) -> None:
        self.out += data.decode()

    async def write_error(self, text: str) -> None:
        self.error += text

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


def build_pod() -> Pod:
    pod = make_pod("web-1", "shop").container().node("node-7").empty_dir("scratch").build()
    container = pod.spec.containers[0]
    container.image = "nginx:1"
    container.env.add(name="GREETING", value="hello $(HOSTNAME)")
    container.resources.limits["memory"].string = "64Mi"
    container.env.add(name="LIMIT").valueFrom.resourceFieldRef.resource = "limits.memory"
    container.env.add(name="NODE").valueFrom.fieldRef.fieldPath = "spec.nodeName"
    container.env.add(name="PASSWORD").valueFrom.secretKeyRef.key = "password"
    pod.spec.volumes.add(name="config").volumeSource.configMap.defaultMode = 0o644
    container.volumeMounts.append(VolumeMount(name="config", mountPath="/etc/app"))
    container.volumeMounts.append(VolumeMount(name="scratch", mountPath="/scratch"))
    return pod


async def run(*command: str, stdin: str = "") -> tuple[int, str, str]:
    views: list[ContainerView] = []
    machine = SimulatedMachine(
        PodSnapshot(build_pod(), views, PodAddresses("172.16.0.1", "10.0.0.9")), "c0", lambda: 1_000_000_000.0
    )
    io = Pipes(stdin)
    code = await Shell(machine, io, PROGRAMS, BUILTINS).run_program(command)
    return code, io.out, io.error


@pytest.mark.parametrize(
    ("script", "code", "out"),
    [
        ("echo \"$GREETING\" '$GREETING' $NODE", 0, "hello web-1 $GREETING node-7\n"),
        ("echo $LIMIT", 0, "67108864\n"),
        ("X='a  b'; echo $X \"$X\" ${X}c", 0, "a b a  b a bc\n"),
        ('echo "\\$NODE" \\$NODE "a\\"b" a\\ b', 0, '$NODE $NODE a"b a b\n'),
        ("false && echo no || echo yes; echo $?", 0, "yes\n0\n"),
        ("true || echo no\n# a comment; don't run it\n\necho last # comment", 0, "last\n"),
        ('echo "two\nlines; &&"', 0, "two\nlines; &&\n"),
        ("exit 300; echo no", 44, ""),
        ("sh -c 'exit 9' ; exit", 9, ""),
        ("export A=1; B=2; sh -c 'echo $A$B'; C=3 sh -c 'echo $C'; echo $C", 0, "1\n3\n\n"),
        ("cd /etc && pwd && ls hosts && cd .. && pwd", 0, "/etc\nhosts\n/\n"),
        ("[ -d /etc ] && [ -f /etc/hosts ] && test a != b && echo ok", 0, "ok\n"),
        ("date; date +%Y", 0, "Sun Sep  9 01:46:40 UTC 2001\n2001\n"),
        ("sleep 1.5 2m && id -u && whoami && hostname -i", 0, "0\nroot\n10.0.0.9\n"),
        ("ls /scratch; echo $UNSET; echo 'a#b' c#d", 0, "\na#b c#d\n"),
    ],
)
async def test_scripts(script: str, code: int, out: str) -> None:
    assert await run("sh", "-c", script) == (code, out, "")


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        ("foo", 127, "sh: foo: not found\n"),
        ("/etc/hosts", 126, "sh: /etc/hosts: Permission denied\n"),
        ("echo 'a", 2, "sh: syntax error: unterminated quoted string\n"),
        ("echo a | cat", 2, 'sh: "|" is not supported in simulated containers: use ;, && and ||\n'),
        ("echo a > /tmp/x", 2, "sh: can't create /tmp/x: simulated containers have no writable files\n"),
        ("echo $(date)", 2, 'sh: "$(" is not supported in simulated containers\n'),
        ("for x in 1; do echo; done", 2, 'sh: "for" is not supported in simulated containers\n'),
        ("true &&", 2, 'sh: syntax error: unexpected "end of file"\n'),
        (";", 2, 'sh: syntax error: unexpected ";"\n'),
        ("cat /etc/none", 1, "cat: can't open '/etc/none': No such file or directory\n"),
        ("ls /etc/app", 1, 'ls: /etc/app: simulated containers do not read the volume "config" (configMap)\n'),
        ("sh -c 'sh -c \"exit 3\"' && true; exit $?", 3, ""),
        ("x" * 20_000, 2, "sh: the line exceeds 16384 characters\n"),
    ],
)
async def test_errors_of_scripts(script: str, code: int, error: str) -> None:
    assert await run("sh", "-c", script) == (code, "", error)


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("foo", 127, 'exec: "foo": executable file not found in $PATH'),
        ("exit", 127, 'exec: "exit": executable file not found in $PATH'),
        ("/opt/foo", 127, 'exec: "/opt/foo": stat /opt/foo: no such file or directory'),
        ("/etc", 126, 'exec: "/etc": is a directory: permission denied'),
        ("/etc/hosts", 126, 'exec: "/etc/hosts": permission denied'),
    ],
)
async def test_command_that_cannot_be_started_fails_as_in_a_container_runtime(command: str, code: int, problem: str) -> None:
    failed = "OCI runtime exec failed: exec failed: unable to start container process"
    assert await run(command) == (code, "", f"{failed}: {problem}: unknown\n")


async def test_files_and_variables_follow_from_the_pod() -> None:
    assert (await run("/bin/cat", "/etc/hostname"))[1] == "web-1\n"
    assert "10.0.0.9\tweb-1\n" in (await run("cat", "/etc/hosts"))[1]
    assert "search shop.svc.cluster.local" in (await run("cat", "/etc/resolv.conf"))[1]
    code, out, error = await run("env")
    assert code == 0 and "GREETING=hello web-1\n" in out and "NODE=node-7\n" in out
    assert error == "env: PASSWORD: simulated containers do not read ConfigMaps and Secrets\n"
    assert "1 root      0:00 nginx:1\n" in (await run("ps", "aux"))[1]


async def test_input_is_a_script_of_sh_and_the_text_of_cat() -> None:
    assert await run("sh", stdin="cd /etc\nfoo\npwd\nexit 4\necho no\n") == (4, "/etc\n", "sh: foo: not found\n")
    assert await run("cat", "-", stdin="a\nb") == (0, "a\nb", "")


async def test_kubectl_cp_is_told_why_there_is_no_tar() -> None:
    code, _, error = await run("tar", "cf", "-", "/etc/hosts")
    assert code == 1 and "simulated containers have no files to copy" in error


async def test_shells_within_shells_are_bounded() -> None:
    assert (await run("sh", "-c", "sh", stdin="sh\n" * 20))[2] == "sh: Resource temporarily unavailable\n" * 14
