"""What an answer depends on: so that pods that are alike need not ask again (`scheduler.framework.reuse`)."""

from enum import Enum, auto


class Sees(Enum):
    """Said by a plugin in its attributes `filter_sees` (of PreFilter and Filter), `score_sees` (of PreScore, Score and
    NormalizeScore) and `skip_sees` (of whether it answers SKIP, where it does not SKIP always). Not said: EVERYTHING.

    Of the pod, an answer that does not see everything depends on the spec, the namespace, the labels and the controller. What
    such a plugin leaves in the state is found by its own next method only, not at a later point.
    """

    EVERYTHING = auto()
    """Asked for every pod, about all nodes."""
    NODES = auto()
    """Nodes, other objects, and which terms pods on nodes state; but not pods on nodes, nor which nodes are feasible."""
    ROW = auto()
    """The answer for a node depends on that node and the pods on it, not on other nodes, nor on whether they are feasible. It
    SKIPs because of the pod alone. Not for `skip_sees`."""
    ROOM = auto()
    """As ROW, and of the pods on the node it is only what they leave free that counts (`free` and `slack` of the table)."""
