"""The plan of a container from its spec, before anything is started."""

import time
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.kubelet.runtime.interface import UnsupportedPod
from pinnace.kubelet.runtime.process import plan as volumes
from pinnace.kubelet.runtime.process.plan import LARGEST, LONGEST, VariableExpansion, build_process_plan, container_environment
from tests.builders import make_pod
from tests.unit.kubelet.process.scene import ADDRESSES, shell

ROOT = Path("/pods/u/containers/c0/root")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(C) $A ${A} $", "$(C) $A ${A} $"),
        ("$$(A) $$$(A) $$", "$(A) $1 $"),
        ("$(A", "$(A"),
        ("$(A) $(A $$ $$$", "1 $(A $ $$"),
    ],
)
def test_references_are_expanded_as_in_kubernetes(text: str, expanded: str) -> None:
    assert VariableExpansion("c").expand(text, {"A": "1", "B": "2"}, "args[0]") == expanded


def pod_and_container() -> tuple[Pod, Container]:
    pod = shell("unused")
    pod.metadata.labels["app"] = "web"
    return pod, pod.spec.containers[0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "a"),
        ("metadata.namespace", "default"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "n"),
        ("status.podIP", "127.0.1.2"),
    ],
)
def test_variable_from_a_pod_field(path: str, value: str) -> None:
    pod, container = pod_and_container()
    container.env.add(name="V").valueFrom.fieldRef.fieldPath = path
    assert container_environment(pod, container, ADDRESSES, {}, VariableExpansion("c0"))["V"] == value


def test_variables_of_services_can_be_referred_to_and_overridden() -> None:
    pod, container = pod_and_container()
    services = {"WEB_SERVICE_HOST": "10.96.0.7", "WEB_SERVICE_PORT": "80"}
    container.env.add(name="URL", value="http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)")
    container.env.add(name="WEB_SERVICE_PORT", value="8080")
    container.args[:] = ["$(WEB_SERVICE_PORT)"]
    made = build_process_plan(pod, container, ADDRESSES, ROOT, {}, services)
    assert (made["env"]["URL"], made["env"]["WEB_SERVICE_HOST"]) == ("http://10.96.0.7:80", "10.96.0.7")
    assert made["env"]["WEB_SERVICE_PORT"] == made["argv"][-1] == "8080"


def test_variables_of_services_count_for_the_limit() -> None:
    pod, container = pod_and_container()
    services = {f"S{index}_SERVICE_HOST": "x" * 1000 for index in range(LARGEST // 1000)}
    with pytest.raises(UnsupportedPod, match="the variables of services \\(see enableServiceLinks\\)"):
        build_process_plan(pod, container, ADDRESSES, ROOT, {}, services)


def test_variable_from_a_resource_with_a_divisor() -> None:
    pod, container = pod_and_container()
    container.resources.limits["memory"].CopyFrom(Quantity(string="100Mi"))
    container.resources.requests["cpu"].CopyFrom(Quantity(string="1500m"))
    for name, resource, divisor in (("M", "limits.memory", "1Mi"), ("C", "requests.cpu", ""), ("N", "limits.cpu", "1")):
        selector = container.env.add(name=name).valueFrom.resourceFieldRef
        selector.resource, selector.divisor.string = resource, divisor
    variables = container_environment(pod, container, ADDRESSES, {}, VariableExpansion("c0"))
    assert [variables[name] for name in "MCN"] == ["100", "2", "0"]


def test_variable_from_a_resource_of_an_init_container() -> None:
    pod = make_pod("a").container().init(memory="1Mi").build()
    container = pod.spec.initContainers[0]
    for name, owner in (("OWN", ""), ("NAMED", "i0")):
        selector = container.env.add(name=name).valueFrom.resourceFieldRef
        selector.resource, selector.containerName = "requests.memory", owner
    variables = container_environment(pod, container, ADDRESSES, {}, VariableExpansion("i0"))
    assert (variables["OWN"], variables["NAMED"]) == ("1048576", "1048576")


def test_container_does_not_inherit_the_kubelets_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "secret")
    pod, container = pod_and_container()
    variables = build_process_plan(pod, container, ADDRESSES, ROOT, {"web-pages": "/volumes/web-pages"})["env"]
    assert "PASSWORD" not in variables
    assert (variables["HOME"], variables["PINNACE_VOLUME_WEB_PAGES"]) == (str(ROOT), "/volumes/web-pages")


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("test.pod", "test.pod"),
        ("a" * 70, "a" * 63),
        ("a" * 62 + "-replica-0", "a" * 62),
        ("a" * 61 + ".-0", "a" * 61),
    ],
)
def test_host_name_is_truncated_to_63_characters(name: str, hostname: str) -> None:
    pod, container = pod_and_container()
    pod.metadata.name = name
    assert build_process_plan(pod, container, ADDRESSES, ROOT, {})["env"]["HOSTNAME"] == hostname


def test_default_variables_cannot_be_referenced() -> None:
    pod, container = pod_and_container()
    container.env.add(name="PATH", value="/opt/bin:$(PATH)")
    container.command[:] = ["echo", "$(HOSTNAME) $(HOME) $(PATH)"]
    made = build_process_plan(pod, container, ADDRESSES, ROOT, {})
    assert made["env"]["PATH"] == "/opt/bin:$(PATH)"
    assert made["argv"] == ["echo", "$(HOSTNAME) $(HOME) /opt/bin:$(PATH)"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", "/pods/u/containers/c0/root"),
        ("/data/sub", "/pods/u/containers/c0/root/data/sub"),
        ("relative", "/pods/u/containers/c0/root/relative"),
        ("../../../etc", "/pods/u/containers/c0/root/etc"),
        ("/var/tmp", "/var/tmp"),
    ],
)
def test_working_directory_is_below_the_root_or_an_existing_path(wanted: str, found: str) -> None:
    _, container = pod_and_container()
    container.volumeMounts.add(name="v", mountPath="/data")
    container.workingDir = wanted
    assert volumes.working_directory(container, ROOT) == found


def test_arguments_follow_the_command_and_memory_is_in_bytes() -> None:
    pod, container = pod_and_container()
    container.args.append("$(POD_IP):8080")
    container.resources.limits["memory"].CopyFrom(Quantity(string="1Mi"))
    made = build_process_plan(pod, container, ADDRESSES, ROOT, {})
    assert (list(made["argv"][-2:]), made["memory"]) == (["unused", "127.0.1.2:8080"], 1 << 20)


class TestLimits:
    def doubling(self, times: int) -> tuple[Pod, Container]:
        """V0 has 1,000 characters, V1 twice as many, and so on."""
        pod, container = pod_and_container()
        container.env.add(name="V0", value="x" * 1000)
        for number in range(1, times + 1):
            container.env.add(name=f"V{number}", value=f"$(V{number - 1})$(V{number - 1})")
        return pod, container

    def test_doubling_variables_are_rejected(self) -> None:
        pod, container = self.doubling(12)
        with pytest.raises(UnsupportedPod, match='container "c0": env "V8" exceeds 131072 characters, the limit'):
            build_process_plan(pod, container, ADDRESSES, ROOT, {})

    def test_too_long_argument_is_rejected(self) -> None:
        pod, container = self.doubling(7)
        container.args.append("$(V7)")
        assert len(build_process_plan(pod, container, ADDRESSES, ROOT, {})["argv"][-1]) == 128_000
        container.args.append("$(V7)" * 100_000)
        with pytest.raises(UnsupportedPod, match=r'container "c0": args\[1\] exceeds'):
            build_process_plan(pod, container, ADDRESSES, ROOT, {})

    def test_too_long_command_line_is_rejected(self) -> None:
        pod, container = self.doubling(7)
        container.args.extend(["$(V7)"] * 100)
        with pytest.raises(UnsupportedPod, match=r"with args\[14\] its command, arguments and variables exceed 2097152"):
            build_process_plan(pod, container, ADDRESSES, ROOT, {})

    def test_large_field_in_many_variables_is_rejected(self) -> None:
        pod, container = pod_and_container()
        pod.metadata.annotations["large"] = "x" * LONGEST
        for number in range(LARGEST // LONGEST + 1):
            container.env.add(name=f"V{number}").valueFrom.fieldRef.fieldPath = "metadata.annotations['large']"
        with pytest.raises(UnsupportedPod, match='with env "V16" its command'):
            build_process_plan(pod, container, ADDRESSES, ROOT, {})

    def test_limit_applies_to_the_expanded_text(self) -> None:
        assert VariableExpansion("c").expand("$$" * LONGEST, {}, "args[0]") == "$" * LONGEST

    def test_unclosed_references_are_expanded_in_linear_time(self) -> None:
        """Regression: the end of each reference was searched up to the end of the text."""
        text = "$(" * 30_000
        started = time.process_time()
        assert VariableExpansion("c").expand(text, {}, "args[0]") == text
        assert time.process_time() - started < 2  # it took six seconds before the fix


class TestVolumes:
    def pod(self, tmp_path: Path) -> Pod:
        pod, container = pod_and_container()
        pod.spec.volumes.add(name="scratch").volumeSource.emptyDir.SetInParent()
        host = pod.spec.volumes.add(name="host").volumeSource.hostPath
        host.path, host.type = str(tmp_path / "host"), "DirectoryOrCreate"
        container.volumeMounts.add(name="scratch", mountPath="/var/scratch", subPath="part")
        container.volumeMounts.add(name="host", mountPath="/host")
        return pod

    def test_volumes_are_linked_at_their_mount_paths(self, tmp_path: Path) -> None:
        pod = self.pod(tmp_path)
        where = volumes.volume_paths(pod, tmp_path / "volumes")
        volumes.make_volumes(pod, where)
        volumes.link_volumes(pod.spec.containers[0], tmp_path / "root", where)  # before the variables are known
        for _ in range(2):  # again, after a restart
            volumes.link_volumes(pod.spec.containers[0], tmp_path / "root", where, {})
        (tmp_path / "root/var/scratch/file").touch()
        (tmp_path / "root/host/file").touch()
        assert (tmp_path / "volumes/scratch/part/file").exists()
        assert (tmp_path / "host/file").exists()

    def test_sub_path_can_depend_on_variables(self, tmp_path: Path) -> None:
        pod = self.pod(tmp_path)
        mount = pod.spec.containers[0].volumeMounts[0]
        mount.subPath, mount.subPathExpr = "", "logs/$(NAME)"
        where = volumes.volume_paths(pod, tmp_path / "volumes")
        volumes.make_volumes(pod, where)
        volumes.link_volumes(pod.spec.containers[0], tmp_path / "root", where, {"NAME": "a"})
        assert (tmp_path / "volumes/scratch/logs/a").is_dir()
        with pytest.raises(UnsupportedPod, match='subPathExpr of "/var/scratch": missing value for "NAME"'):
            volumes.link_volumes(pod.spec.containers[0], tmp_path / "root", where, {})

    def test_host_path_type_is_checked(self, tmp_path: Path) -> None:
        pod = self.pod(tmp_path)
        pod.spec.volumes[1].volumeSource.hostPath.type = "File"
        with pytest.raises(UnsupportedPod, match='volume "host": hostPath type check failed'):
            volumes.make_volumes(pod, volumes.volume_paths(pod, tmp_path / "volumes"))

    def test_mount_path_inside_another_volume_is_rejected(self, tmp_path: Path) -> None:
        pod = self.pod(tmp_path)
        pod.spec.containers[0].volumeMounts.add(name="scratch", mountPath="/host/inside")
        where = volumes.volume_paths(pod, tmp_path / "volumes")
        volumes.make_volumes(pod, where)
        with pytest.raises(UnsupportedPod, match='mountPath "/host/inside" is inside another volume'):
            volumes.link_volumes(pod.spec.containers[0], tmp_path / "root", where)
