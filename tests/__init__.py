"""Tests: unit, contract, integration, compose. `tests.builders` makes objects."""
