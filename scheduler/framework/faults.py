"""Plugins that fail, in the log: the traceback once for each message, which names the plugin. Events tell of each pod."""

import logging

from scheduler.framework.results import PluginError

log = logging.getLogger(__name__)

MOST = 1000
"""Messages that are remembered: when a plugin makes a new one for each pod, some are told again."""


class Faults:
    def __init__(self) -> None:
        self._told: set[str] = set()

    def note(self, error: PluginError) -> None:
        message = str(error)
        if message in self._told:
            return
        if len(self._told) >= MOST:
            self._told.clear()
        self._told.add(message)
        log.error("%s", message, exc_info=error.problem)
