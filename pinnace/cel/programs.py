"""Single expressions with named variables: match conditions, admission policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALL_LIMIT = 1_000_000


class CompileError(Exception):
    """The text says what is wrong, as Kubernetes does: "compilation failed: ERROR: <input>:1:5: ..." """


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """The result of an evaluation that failed, e.g. "no such key: data"."""

    message: str


class Program:
    """A compiled expression. `result_type`: CEL's name of the type of its result, e.g. "bool" or "dyn". `cost`: estimated maximum."""

    text: str
    result_type: str
    cost: int

    def evaluate(self, bindings: Mapping[str, Any], *, limit: int = CALL_LIMIT) -> Any:
        """Return the result as JSON, or an EvaluationError. `bindings`: JSON by the name of the variable; a missing one is an error
        when the expression reads it. `limit`: maximum cost. The cost of the evaluation is in `EvaluationError` or `last_cost`."""
        raise NotImplementedError


def compile_expression(text: str, variables: Mapping[str, str], *, result_types: tuple[str, ...] = ()) -> Program:
    """Compile an expression over variables. `variables`: CEL's type by name: "dyn", "bool", "string", "int", "map", "list",
    "authorizer" (a `pinnace.cel.authorizer.Authorizer`), "request" (an AdmissionRequest).

    Raises CompileError; also if the type of the result is not in `result_types` ("must evaluate to bool").
    """
    raise NotImplementedError
