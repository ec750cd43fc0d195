"""BenchError: the measurement did not come about, so there is no figure."""


class BenchError(Exception):
    pass
