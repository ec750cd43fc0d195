"""Scenarios: one fault each, with a timeline of its effects and a verdict."""
