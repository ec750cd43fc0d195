"""`$(NAME)` in commands, arguments and the values of variables, as Kubernetes replaces it.

`$(NAME)` becomes the variable's value, or stays as it is when there is none of that name; `$$` stands for one `$`, so that
`$$(NAME)` becomes `$(NAME)`. Everything else is left alone.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)
