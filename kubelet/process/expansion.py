"""`$(NAME)` in commands, arguments and the values of variables, as Kubernetes replaces it.

`$(NAME)` becomes the variable's value, or stays as it is when there is none of that name; `$$` stands for one `$`, so that
`$$(NAME)` becomes `$(NAME)`. Everything else is left alone.

Each variable may refer to the one before it twice, so that twenty of them become gigabytes, and many may be the same large
annotation. What Linux would not take is therefore not made: it counts bytes, and tells of what lies between by itself.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
"""

import re
from collections.abc import Mapping

from kubelet.runtime import Unsupported

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
LONGEST = 128 << 10
"""Characters of one argument or variable: MAX_ARG_STRLEN, see execve(2)."""
LARGEST = 2 << 20
"""Characters of all arguments and variables together: a quarter of the stack, which is 8 MiB unless somebody says otherwise."""


class Expansion:
    """For one container: what it has been given so far counts, also what another variable of the same name replaces."""

    def __init__(self, container: str) -> None:
        self._container = container
        self._left = LARGEST

    def expand(self, text: str, variables: Mapping[str, str], what: str) -> str:
        """`what`: the text is, such as "args[2]". Raises Unsupported."""
        size = 0

        def value(found: re.Match[str]) -> str:
            nonlocal size
            new = "$" if found[0] == "$$" else variables.get(found[1], found[0])
            size += len(new)
            if size > LONGEST:
                raise self._too_long(what)
            return new

        closed = text.rfind(")") + 1  # beyond it nothing is a reference, and each "$(" would be sought an end for
        return self.take(_REFERENCE.sub(value, text[:closed]) + text[closed:].replace("$$", "$"), what)

    def take(self, value: str, what: str) -> str:
        """Counts a value that is none of these texts. Raises Unsupported."""
        if len(value) > LONGEST:
            raise self._too_long(what)
        self._left -= len(value)
        if self._left < 0:
            raise Unsupported(
                f'container "{self._container}": with {what} its command, arguments and variables are more than '
                f"{LARGEST} characters, which Linux does not take"
            )
        return value

    def _too_long(self, what: str) -> Unsupported:
        return Unsupported(
            f'container "{self._container}": {what} is longer than {LONGEST} characters, which Linux does not take'
        )
