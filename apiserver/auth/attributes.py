"""What somebody wants to do, in the words of Kubernetes' authorisation.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#review-your-request-attributes
"""

from typing import NamedTuple


class Action(NamedTuple):
    """`resource` has its subresource behind a slash ("pods/status"). One that begins with a slash is no resource of the API but
    a path, as in a rule's nonResourceURLs; its group is empty."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        if self.resource.startswith("/"):
            return f"{self.verb} {self.resource}"
        return f'{self.verb} resource "{self.resource}" in API group "{self.group}"'


class Target(NamedTuple):
    """To what. An empty namespace is all of them (or the resource has none), an empty name is all names; a list or watch also
    says by which selectors it is narrowed, as text, and has a name when these leave but one."""

    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""


class Verdict(NamedTuple):
    allowed: bool
    reason: str
    """Which rule allows it; or, of a denial, what else there is to say: often nothing."""


DENIED = Verdict(False, "")
EVERYTHING = Target()
