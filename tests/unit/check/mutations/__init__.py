"""What is done to honest histories to see whether anybody notices. A module for each group of invariants."""

from tests.unit.check.mutations import binding, calling, listing, living, running, serving, watching, whole
from tests.unit.check.mutations.registry import MUTATIONS, Mutation

__all__ = ["MUTATIONS", "Mutation", "binding", "calling", "listing", "living", "running", "serving", "watching", "whole"]
