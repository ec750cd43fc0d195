"""The images that the process runtime knows: what their containers run.

Images are not pulled. An entry of the table says what an image would say: its ENTRYPOINT (`command`), its CMD (`args`), and its
variables. A container overrides them as in Kubernetes:

    container           what runs
    no command, no args command and args of the entry
    args only           command of the entry, args of the container
    command             command and args of the container; only the variables of the entry

The key of an entry is the name of an image without registry, tag and digest. An entry whose key contains "/" matches the last
parts of the name, another one its last part; "*" stands for any characters except "/". Entries of a file come before the
built-in ones, and the first match wins:

    images:
      team/api: {command: [/opt/api/bin/server], args: ["--port", "80"], env: {MODE: local}}
      "redis*": {command: [redis-server]}

Source: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

import pinnace
from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.runtime.configuration import ConfigurationError, parse_fields, parse_list

MAX_FILE = 1 << 20
"""Maximum size of a file with images, in bytes."""
_HTDOCS = {  # the folders of their documents
    "nginx": "/usr/share/nginx/html",
    "httpd": "/usr/local/apache2/htdocs",
}


class ImageProgram(NamedTuple):
    """One entry of the table."""

    command: Sequence[str] = ()
    """ENTRYPOINT."""
    args: Sequence[str] = ()
    """CMD."""
    env: Mapping[str, str] = MappingProxyType({})
    """Variables. Those of the container replace them."""


def _python_module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Run a module of this package. Its path is not a variable of the container."""
    path = f"PYTHONPATH={Path(str(pinnace.__file__)).parents[1]}"
    return ("env", path, sys.executable, "-S", "-P", "-m", f"pinnace.kubelet.runtime.process.{module}", *arguments)


BUILT_IN: Mapping[str, ImageProgram] = {
    "pause": ImageProgram(command=_python_module_command("pause")),
    "busybox": ImageProgram(args=("sh",)),
    "alpine": ImageProgram(args=("/bin/sh",)),
    "python": ImageProgram(args=(sys.executable,)),
    **{name: ImageProgram(args=_python_module_command("web_server", documents)) for name, documents in _HTDOCS.items()},
}


class ImageTable:
    """Entries in the order in which they are compared with the name of an image."""

    def __init__(self, entries: Mapping[str, ImageProgram] | None = None) -> None:
        """`entries`: come before the built-in ones."""
        self._entries = [(_compile_pattern(key), image) for key, image in [*(entries or {}).items(), *BUILT_IN.items()]]

    def find_image(self, reference: str) -> ImageProgram | None:
        """The entry of an image such as "registry.example/team/api:1.2". None: the image is unknown."""
        name = image_name(reference)
        return next((image for pattern, image in self._entries if pattern.search(name)), None)

    def find_unknown_image(self, pod: Pod) -> str:
        """The first image of the pod of which nothing says what it runs. Empty: all containers can run as processes."""
        for container in (*pod.spec.initContainers, *pod.spec.containers):
            if not container.command and self.find_image(container.image) is None:
                return container.image
        return ""


def image_name(reference: str) -> str:
    """The name without digest and tag."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def container_command(container: Container, image: ImageProgram | None) -> tuple[Sequence[str], Sequence[str]]:
    """The command and the arguments of a container."""
    if container.command:
        return container.command, container.args
    if image is None:
        return (), container.args
    return image.command, container.args or image.args


def load_images(path: Path) -> ImageTable:
    """Read a table of images. Raises ConfigurationError, and OSError if the file cannot be read."""
    with path.open("rb") as file:
        text = file.read(MAX_FILE + 1)
    if len(text) > MAX_FILE:
        raise ConfigurationError(f"{path}: larger than {MAX_FILE} bytes")
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: invalid YAML: {error}") from None
    try:
        given = parse_fields(raw, "", ("images",)).get("images")
        if not isinstance(given, dict):
            raise ConfigurationError("images: expected entries such as {busybox: {command: [sh]}}")
        return ImageTable({_parse_key(key): _parse_image(entry, f"images.{key}") for key, entry in given.items()})
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _parse_key(raw: Any) -> str:
    if not isinstance(raw, str) or not re.fullmatch(r"[a-z0-9*]([a-z0-9._*/-]*[a-z0-9*])?", raw):
        raise ConfigurationError(f'images: "{raw!s:.100}" is not the name of an image without registry port, tag and digest')
    return raw


def _parse_image(raw: Any, path: str) -> ImageProgram:
    result = parse_fields(raw, path, ("command", "args", "env"))
    command, args = (_parse_words(result.get(name, []), f"{path}.{name}") for name in ("command", "args"))
    env = result.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(text, str) for pair in env.items() for text in pair):
        raise ConfigurationError(f"{path}.env: expected texts by name")
    if not command and not args:
        raise ConfigurationError(f"{path}: expected command, args, or both")
    return ImageProgram(command, args, env)


def _parse_words(raw: Any, path: str) -> tuple[str, ...]:
    words = parse_list(raw, path)
    if not all(isinstance(word, str) for word in words):
        raise ConfigurationError(f"{path}: expected texts; put numbers in quotes")
    return tuple(words)


def _compile_pattern(key: str) -> re.Pattern[str]:
    """Match the end of a name, from a "/" or the beginning."""
    return re.compile(r"(?:^|/)" + re.escape(key).replace(r"\*", "[^/]*") + "$")
