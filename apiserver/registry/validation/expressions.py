"""The variables of CEL expressions in match conditions and policies, and the compilation of named expressions.

Source: pkg/admission/plugin/cel of k8s.io/apiserver 1.36.
"""

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from pinnace.api.admissionregistration_v1_pb2 import Variable
from pinnace.cel.programs import ADMISSION_VARIABLES, Program, compile_expression, variables_type
from pinnace.cel.syntax import CompileError
from pinnace.cel.types import Type

MAX_EXPRESSIONS = 64 << 10
"""Bytes of all expressions of an object: their compilation blocks the server for up to a second."""
_EXPRESSIONS = ("expression", "messageExpression", "valueExpression")
VariableTypes = Mapping[str, str | Type]
"""The types of variables by name."""
_AUTHORIZER = ("authorizer", "authorizer.requestResource")


def expressions_size(message: Message) -> int:
    """Return the number of bytes of all expressions in a message."""
    size = 0
    for field, value in message.ListFields():
        if field.message_type is None:
            size += len(value.encode()) if field.name in _EXPRESSIONS else 0
        elif not field.message_type.GetOptions().map_entry:
            size += sum(map(expressions_size, value)) if field.is_repeated else expressions_size(value)
    return size


def variable_types(*, has_params: bool, has_authorizer: bool = True) -> VariableTypes:
    """Return the variables of an expression, without `variables`."""
    omitted = (() if has_params else ("params",)) + (() if has_authorizer else _AUTHORIZER)
    return {name: kind for name, kind in ADMISSION_VARIABLES.items() if name not in omitted}


class NamedExpressions:
    """The compiled variables of a policy. `problems`: those that do not compile, by position."""

    def __init__(self, variables: Iterable[Variable], *, has_params: bool) -> None:
        self.programs: dict[str, Program] = {}
        self.problems: dict[int, str] = {}
        self._has_params = has_params
        for index, variable in enumerate(variables):
            try:
                self.programs[variable.name] = compile_expression(variable.expression, self.types())
            except CompileError as error:
                self.problems[index] = str(error)

    def types(self, *, has_authorizer: bool = True) -> VariableTypes:
        """Return the variables of the expressions after the named ones."""
        declared = variable_types(has_params=self._has_params, has_authorizer=has_authorizer)
        if not self.programs:
            return declared
        return {**declared, "variables": variables_type(self.programs, {})}
