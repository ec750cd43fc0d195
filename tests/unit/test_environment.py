"""Environment variables of the four components: the variable of an option is named after its flag."""

import pytest
from click.testing import CliRunner

import pinnace.apiserver.main
import pinnace.controllers.main
import pinnace.kubelet.main
import pinnace.scheduler.main

COMMANDS = {
    "APISERVER": pinnace.apiserver.main.main,
    "SCHEDULER": pinnace.scheduler.main.main,
    "CONTROLLERS": pinnace.controllers.main.main,
    "KUBELET": pinnace.kubelet.main.main,
}
GRACE = "PINNACE_CONTROLLERS_NODE_STARTUP_GRACE_PERIOD"
OPTIONS = [(component, max(option.opts, key=len)) for component, command in COMMANDS.items() for option in command.params]


@pytest.mark.parametrize(("component", "flag"), OPTIONS)
def test_variable_is_named_after_the_flag(component: str, flag: str) -> None:
    command = COMMANDS[component]
    option = next(param for param in command.params if flag in param.opts)
    assert option.envvar == f"PINNACE_{component}_{flag.removeprefix('--').replace('-', '_').upper()}"
    assert f"[env var: {option.envvar}" in " ".join(CliRunner().invoke(command, ["--help"]).output.split())


def test_variable_sets_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GRACE, "7")
    assert pinnace.controllers.main.main.make_context("controllers", []).params["startup"] == 7.0
    assert (
        pinnace.controllers.main.main.make_context("controllers", ["--node-startup-grace-period", "8"]).params["startup"] == 8.0
    )


@pytest.mark.parametrize(
    ("variable", "warning"),
    [
        (
            "PINNACE_CONTROLLERS_STARTUP",
            f"the environment variable PINNACE_CONTROLLERS_STARTUP matches no option; did you mean {GRACE}?",
        ),
        (f"{GRACE}S", f"the environment variable {GRACE}S matches no option; did you mean {GRACE}?"),
        ("PINNACE_CONTROLLERS_XYZ", "the environment variable PINNACE_CONTROLLERS_XYZ matches no option; see --help"),
    ],
)
def test_unknown_variable_causes_a_warning(monkeypatch: pytest.MonkeyPatch, variable: str, warning: str) -> None:
    monkeypatch.setenv(variable, "s3cret")
    output = CliRunner().invoke(pinnace.controllers.main.main, ["--kubeconfig", __file__]).output
    assert warning in output and "s3cret" not in output


def test_variables_of_other_components_cause_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "PINNACE_SERVER", "PINNACE_SCHEDULER_XYZ", GRACE):
        monkeypatch.setenv(name, "1")
    assert "in the environment" not in CliRunner().invoke(pinnace.controllers.main.main, ["--kubeconfig", __file__]).output
