"""Logs of simulated containers, computed from the start of the container and the time of the request.

    LogLine (stage file, or the default of an image)  --+
    start of the container, seed                        +--> ContainerLog --> the lines of any interval of time
    placeholders: pod, node, image, ...               --+

Nothing is stored, and nothing runs until somebody reads a log. The same request returns the same lines, also after a restart of
the kubelet, because a log begins at the whole second of the container's start (statuses have seconds). Lines of a log have
different times, so that a time identifies a position.
"""

import heapq
import re
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SECOND, MILLISECOND = 10**9, 10**6
"""Nanoseconds."""
MAX_LINES = 50_000
"""Lines of a log that can be read. Older lines are gone, as after a rotation."""
LONGEST_TEXT = 1024
"""Characters of the text of a line in a stage file."""
PLACEHOLDERS = ("container", "pod", "namespace", "image", "node", "ip", "host", "number", "time")
_PLACEHOLDER = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NGINX = (
    "/docker-entrypoint.sh: Configuration complete; ready for start up",
    '{time:%Y/%m/%d %H:%M:%S} [notice] 1#1: using the "epoll" event method',
    "{time:%Y/%m/%d %H:%M:%S} [notice] 1#1: start worker processes",
)
_ACCESS = '{host} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "GET / HTTP/1.1" 200 615 "-" "curl/8.7.1"'


@dataclass(frozen=True, slots=True)
class SimulatedLogLine:
    """A line at the start of the container, or one that is repeated."""

    text: str
    """With placeholders such as {pod}; see `validate_log_text`."""
    interval: float = 0.0
    """Seconds between two lines. 0: the line is written once, when the container starts."""
    jitter: float = 0.0
    """Maximum of an additional delay in seconds; at most `interval`."""
    container: str = ""
    """The name of the container that writes the line. Empty: all containers."""


def validate_log_text(text: str) -> str:
    """Return the error in the text of a line, or "" if it is valid."""
    if not text or len(text) > LONGEST_TEXT or not text.isprintable():
        return f"expected 1 to {LONGEST_TEXT} printable characters"
    for name, format_ in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            return f"{{{name}}} is not a placeholder; there are {', '.join(PLACEHOLDERS)}"
        if format_ and name != "time":
            return f"{{{name}}} has no format; only {{time:FORMAT}} has one"
    return ""


STARTED = SimulatedLogLine("container {container} of pod {namespace}/{pod} started (image {image})")
GENERIC = (STARTED, SimulatedLogLine("container {container}: heartbeat {number}", interval=10))
DEFAULTS: Mapping[str, Sequence[SimulatedLogLine]] = {
    "nginx": (STARTED, *map(SimulatedLogLine, _NGINX), SimulatedLogLine(_ACCESS, interval=15, jitter=12)),
    "httpd": (
        STARTED,
        SimulatedLogLine(
            "[{time:%a %b %d %H:%M:%S.000000 %Y}] [mpm_event:notice] [pid 1:tid 1] AH00489: resuming normal operations"
        ),
        SimulatedLogLine(_ACCESS, interval=15, jitter=12),
    ),
    "redis": (
        STARTED,
        SimulatedLogLine("1:M {time:%d %b %Y %H:%M:%S}.000 * Ready to accept connections tcp"),
        SimulatedLogLine("1:M {time:%d %b %Y %H:%M:%S}.000 * 100 changes in 300 seconds. Saving...", interval=300),
    ),
    "postgres": (
        STARTED,
        SimulatedLogLine("{time:%Y-%m-%d %H:%M:%S}.000 UTC [1] LOG:  database system is ready to accept connections"),
        SimulatedLogLine("{time:%Y-%m-%d %H:%M:%S}.000 UTC [27] LOG:  checkpoint complete", interval=300),
    ),
    "mysql": (
        STARTED,
        SimulatedLogLine("{time:%Y-%m-%dT%H:%M:%S}.000000Z 0 [System] [MY-010931] [Server] mysqld: ready for connections."),
    ),
    "pause": (),
}
"""By the last part of the image's name."""


def default_lines(image: str) -> Sequence[SimulatedLogLine]:
    """The lines of a container without a stage."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return DEFAULTS.get(name, GENERIC)


class ContainerLog:
    """The log of one attempt of a container. Times are Unix times in nanoseconds."""

    def __init__(
        self, lines: Sequence[SimulatedLogLine], values: Mapping[str, str], started: float, seed: str, attempt: int
    ) -> None:
        """`values`: of the placeholders except number and time. `started`: Unix time in seconds."""
        self.attempt = attempt
        self._values = values
        self._began = int(started) * SECOND
        once = [line for line in lines if not line.interval]
        self._once = [(self._began + index * MILLISECOND, line) for index, line in enumerate(once)]
        repeated = [line for line in lines if line.interval]
        self._series = [
            _RepeatedLines(line, self._began + number, zlib.crc32(f"{seed} {number}".encode()))
            for number, line in enumerate(repeated, start=1)
        ]

    @property
    def start_written(self) -> int:
        """The time of the last line of the start."""
        return self._once[-1][0] if self._once else self._began

    def count_lines(self, until: int) -> int:
        """The number of lines up to this time, inclusively."""
        return bisect_left(self._once, until + 1, key=lambda item: item[0]) + sum(item.count(until) for item in self._series)

    def start_time_of_tail(self, tail: int | None, since: int, until: int) -> int:
        """The time after which the requested lines begin. `tail`: number of lines before `until`."""
        wanted = self.count_lines(until) - min(MAX_LINES if tail is None else tail, MAX_LINES)
        earliest = max(self._began - 1, since - 1)
        if wanted <= 0:
            return earliest
        return max(earliest, bisect_left(range(until), wanted, lo=self._began, key=self.count_lines))

    def next_time(self, after: int) -> int | None:
        """The time of the next line. None: there is none."""
        once = [moment for moment, _ in self._once if moment > after]
        return min([*once[:1], *(item.time(item.count(after) + 1) for item in self._series)], default=None)

    def read(self, after: int, until: int, *, timestamps: bool) -> Iterator[tuple[int, str]]:
        """The times and lines after one time and up to another, which end with a newline."""
        once = ((moment, line, 1) for moment, line in self._once if after < moment <= until)
        merged = heapq.merge(once, *(item.read(after, until) for item in self._series), key=lambda item: item[0])
        for moment, line, number in merged:
            text = self._render(line.text, number, moment)
            yield moment, f"{format_rfc3339(moment)} {text}\n" if timestamps else f"{text}\n"

    def _render(self, text: str, number: int, moment: int) -> str:
        def value(match: "re.Match[str]") -> str:
            name, format_ = match.groups()
            if name == "time":
                return time.strftime(format_ or _TIME, time.gmtime(moment // SECOND))
            return str(number) if name == "number" else self._values.get(name, "")

        return _PLACEHOLDER.sub(value, text)


class _RepeatedLines(NamedTuple):
    """The lines of a repeated LogLine. Line n, counted from 1, is written n intervals after `began`, plus jitter."""

    line: SimulatedLogLine
    began: int
    seed: int

    def time(self, number: int) -> int:
        offset = round(self.line.interval * 1000) * number
        if jitter := round(self.line.jitter * 1000):
            offset += zlib.crc32(number.to_bytes(8, "big"), self.seed) % jitter
        return self.began + offset * MILLISECOND

    def count(self, until: int) -> int:
        number = (until - self.began) // (round(self.line.interval * 1000) * MILLISECOND)
        if number <= 0:
            return 0
        return number if self.time(number) <= until else number - 1

    def read(self, after: int, until: int) -> Iterator[tuple[int, SimulatedLogLine, int]]:
        number = self.count(after) + 1
        while (moment := self.time(number)) <= until:
            yield moment, self.line, number
            number += 1


def format_rfc3339(moment: int) -> str:
    """With nine digits, as container runtimes write it."""
    seconds, rest = divmod(moment, SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"
