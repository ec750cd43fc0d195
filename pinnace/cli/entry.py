"""The entry point of the installed `pinnace`. It handles interrupts before other modules are imported, and hands the verbs of
kubectl to kubectl before the modules of our command line are."""

import sys

from pinnace.cli import kubectl
from pinnace.cli.table import KUBECTL, KUBECTL_VERBS, LOGS, OUR_VERBS, find_first_argument
from pinnace.runtime.interrupts import exit_on_lost_interrupt, exit_silently_on_interrupt, raise_first_interrupt


def main() -> None:
    heeded = exit_silently_on_interrupt()
    exit_on_lost_interrupt()
    words = dispatch(sys.argv[1:])
    from pinnace.cli import main as program

    if heeded:
        raise_first_interrupt()
    program.main(words)


def dispatch(words: list[str]) -> list[str]:
    """Become kubectl if the verb is kubectl's or a plugin's; otherwise return the words for our command line."""
    at = find_first_argument(words)
    verb = words[at] if at < len(words) else ""
    if verb == "help":
        return dispatch([*words[:at], *words[at + 1 :], "--help"])
    if verb in kubectl.COMPLETE:
        from pinnace.cli import completing

        completing.print_completions(words[at:])
    elif verb == KUBECTL:
        kubectl.become_kubectl_or_exit(words[:at] + words[at + 1 :])
    elif verb == LOGS and kubectl.is_component(words, at):
        return words
    elif verb in KUBECTL_VERBS or (verb and verb not in OUR_VERBS and kubectl.is_plugin(verb)):
        kubectl.become_kubectl_or_exit(words)
    return words


if __name__ == "__main__":
    main()
