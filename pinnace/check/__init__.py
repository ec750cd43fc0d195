"""Checks the invariants of a run on its history, and reports the verdicts (docs/checking.md).

history.py defines the records, index.py indexes them, check.py lists the invariants, and verdict.py renders the report.
"""
