"""What can go wrong with an extender. Messages name its URL.

ExtenderError     the call failed; it is over
+-- NotSent       it was never made
+-- AnswerLost    it may have been carried out, or may yet be
"""


class ExtenderError(Exception):
    def __init__(self, verb: str, url: str, problem: str) -> None:
        super().__init__(f"failed {verb} with extender at URL {url}{problem}")
        self.verb = verb


class NotSent(ExtenderError):
    pass


class AnswerLost(ExtenderError):
    pass
