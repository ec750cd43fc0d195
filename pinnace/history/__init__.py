"""The history of a run: the format of its records, and the verdicts of the checkers on it (pinnace.verification.check)."""
