"""Match conditions: CEL expressions that must all be true for a webhook to be called, or a policy to be used.

A condition that is false decides, even if another one fails. Otherwise a failure rejects the write, or, with the failurePolicy
Ignore, counts as false.

Source: pkg/admission/plugin/webhook/matchconditions of k8s.io/apiserver 1.36.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api.admissionregistration_v1_pb2 import MatchCondition
from pinnace.apiserver.registry.validation.expressions import VariableTypes, variable_types
from pinnace.cel.meter import Meter
from pinnace.cel.programs import EvaluationError, Program, compile_expression
from pinnace.cel.syntax import CompileError


class MatchResult(NamedTuple):
    """`error`: why the conditions could not be evaluated; "" if they could."""

    matches: bool
    error: str = ""


class _Condition(NamedTuple):
    expression: str
    program: Program | None
    problem: str = ""


class WebhookConditions:
    """The match conditions of a webhook. They are compiled in a thread when a write first needs them: 64 KiB take up to a
    second, which only the writes that the webhook concerns wait for."""

    def __init__(self, conditions: Sequence[MatchCondition], *, ignores_failures: bool) -> None:
        self._conditions = conditions
        self._ignores_failures = ignores_failures
        self._compiled: MatchConditions | None = None
        self._compiling = asyncio.Lock()

    def __bool__(self) -> bool:
        """Whether there are conditions."""
        return bool(self._conditions)

    async def compiled(self) -> "MatchConditions":
        if self._compiled is None:
            async with self._compiling:
                if self._compiled is None:

                    def compile_all() -> MatchConditions:
                        return MatchConditions.compile(self._conditions, ignores_failures=self._ignores_failures)

                    self._compiled = await asyncio.to_thread(compile_all)
        return self._compiled


class MatchConditions:
    """Compiled conditions. An expression that does not compile, such as one of an earlier version, fails when it is used."""

    def __init__(self, conditions: Sequence[_Condition], *, ignores_failures: bool) -> None:
        self._conditions = conditions
        self._ignores_failures = ignores_failures

    @classmethod
    def compile(
        cls, conditions: Iterable[MatchCondition], *, ignores_failures: bool, has_params: bool = False
    ) -> "MatchConditions":
        variables = variable_types(has_params=has_params)
        return cls([_compile(item.expression.strip(), variables) for item in conditions], ignores_failures=ignores_failures)

    def evaluate(self, bindings: Mapping[str, Any], meter: Meter | None = None) -> MatchResult:
        """`bindings`: the values of the variables by name. `meter`: the limits of the evaluation."""
        meter = meter if meter is not None else Meter()
        errors = list[str]()
        for condition in self._conditions:
            if condition.program is None:
                errors.append(condition.problem)
                continue
            value = condition.program.evaluate(bindings, meter)
            if isinstance(value, EvaluationError):
                errors.append(f"expression '{condition.expression}' resulted in error: {value.message}")
            elif value is not True:
                return MatchResult(False)
        if not errors:
            return MatchResult(True)
        if self._ignores_failures:
            return MatchResult(False)
        return MatchResult(False, errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _compile(expression: str, variables: VariableTypes) -> _Condition:
    try:
        return _Condition(expression, compile_expression(expression, variables, result_types=("bool",)))
    except CompileError as error:
        return _Condition(expression, None, str(error))
