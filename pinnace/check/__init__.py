"""Checkers for the invariants of a run. They read the history of the run and report verdicts (docs/checking.md).

history.py defines the records, index.py indexes them, check.py lists the invariants, and verdict.py renders the report.
"""
