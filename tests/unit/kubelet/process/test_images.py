"""The table of images, and the command of a container without one."""

import signal
import sys
import time
from pathlib import Path
from subprocess import Popen

import pytest

from pinnace.kubelet.runtime.process.images import ImageProgram, ImageTable, load_images
from pinnace.kubelet.runtime.process.plan import build_process_plan
from pinnace.runtime.configuration import ConfigurationError
from tests.unit.kubelet.process.scene import ADDRESSES, shell

ROOT = Path("/pods/u/containers/c0/root")


@pytest.mark.parametrize(
    ("reference", "known"),
    [
        ("nginx", True),
        ("docker.io/library/nginx:1.27-alpine", True),
        ("localhost:5000/team/busybox@sha256:0123", True),
        ("registry.k8s.io/pause:3.10", True),
        ("mynginx", False),
        ("nginx/exporter", False),
        ("none", False),
    ],
)
def test_images_are_found_without_registry_and_tag(reference: str, known: bool) -> None:
    assert (ImageTable().find_image(reference) is not None) == known


def test_file_comes_before_the_built_in_images(tmp_path: Path) -> None:
    path = tmp_path / "images.yaml"
    path.write_text('images:\n  nginx: {command: [my-nginx]}\n  "team/api-*": {args: [serve], env: {A: "1"}}\n')
    table = load_images(path)
    assert table.find_image("nginx:1") == ImageProgram(("my-nginx",), (), {})
    assert table.find_image("example.org/team/api-v2:3") == ImageProgram((), ("serve",), {"A": "1"})
    assert table.find_image("api-v2") is None
    assert table.find_image("alpine") is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("images: {a: {command: [1]}}", r"images.a.command: expected texts"),
        ("images: {a: {}}", "images.a: expected command, args, or both"),
        ("images: {a: {command: [x], entrypoint: [y]}}", "images.a.entrypoint: unknown field; supported: command, args, env"),
        ("images: {'a:1': {command: [x]}}", 'images: "a:1" is not the name of an image'),
        ("pictures: {}", "pictures: unknown field"),
        ("images: {a: {command: [x], env: {A: 1}}}", "images.a.env: expected texts by name"),
        ("{", "invalid YAML"),
    ],
)
def test_invalid_file_is_rejected_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "images.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=problem) as raised:
        load_images(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("command", "args", "runs"),
    [
        ([], [], ["entry", "$(A)"]),
        ([], ["own-$(A)"], ["entry", "own-2"]),
        (["other"], [], ["other"]),
        (["other"], ["own"], ["other", "own"]),
    ],
)
def test_command_and_args_override_the_image_as_in_kubernetes(command: list[str], args: list[str], runs: list[str]) -> None:
    """Only the words of the container are expanded."""
    table = ImageTable({"app": ImageProgram(("entry",), ("$(A)",), {"A": "1", "B": "3"})})
    pod = shell("unused")
    container = pod.spec.containers[0]
    container.command[:], container.args[:] = command, args
    container.env.add(name="A", value="2")
    plan = build_process_plan(pod, container, ADDRESSES, ROOT, {}, images=table)
    assert plan["argv"] == runs
    assert plan["env"]["A"] == "2"
    assert plan["env"]["B"] == "3"


@pytest.mark.processes
def test_pause_ends_with_code_0_on_sigterm() -> None:
    command = [sys.executable, "-S", "-P", "-m", "pinnace.kubelet.runtime.process.pause"]
    with Popen(command, env={"PYTHONPATH": str(Path.cwd())}) as pause:
        call, deadline = Path(f"/proc/{pause.pid}/syscall"), time.monotonic() + 20
        while call.read_text().split()[0] not in ("128", "137"):  # rt_sigtimedwait of x86-64 and arm64
            assert pause.poll() is None and time.monotonic() < deadline
        pause.send_signal(signal.SIGTERM)
        assert pause.wait(timeout=10) == 0
