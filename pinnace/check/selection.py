"""What a list or a watch asks for, as far as a history can tell which objects that is."""

from dataclasses import dataclass

from pinnace.check.facts import PodFacts
from pinnace.check.history import Stored

BY_NODE = "spec.nodeName="


@dataclass(frozen=True, slots=True)
class Selection:
    prefix: str
    selector: str = ""

    @property
    def judged(self) -> bool:
        """Can be decided from facts; else only what was told can be compared, not what was left out."""
        return not self.selector or (self.selector.startswith(BY_NODE) and "," not in self.selector)

    def selects(self, stored: Stored | None) -> bool:
        """Of a key under the prefix."""
        if stored is None or not stored.digest:
            return False
        if not self.selector:
            return True
        return isinstance(stored.facts, PodFacts) and stored.facts.node == self.selector.removeprefix(BY_NODE)
