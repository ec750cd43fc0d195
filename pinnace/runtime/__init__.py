"""What every process of ours needs to run, whatever it does. Nothing here knows the API.

process.py         run until a signal, stop gracefully, die loudly on a bug
interrupts.py      before that an interrupt ends it without a word
supervise.py       the one loop of what must go on after a failure; backoff.py: how long it waits (a value)
flags.py           the flags that components share; configuration.py: files, read with the path of what is wrong
logs.py            log lines, as text or JSON; log_events.py: the events with fields that JSON lines have, and their reader
http.py            health, metrics and pages: a process whose event loop is stuck is not alive
stalls.py          a thread that sees the event loop stand still, and says where
tracing.py         traces that follow a pod across processes; otel.py: handing them to OpenTelemetry
tls.py             both sides show a certificate; files may be replaced meanwhile
peers.py           how many may connect, and say nothing for how long; refusals.py: how fast refused calls are answered
build.py           which version and commit this is

clock.py           time as a parameter; chance.py: where randomness comes from, for who is given none
silence.py         how long a peer was silent, our own pauses not counted
turns.py           long work in portions, with turns for others; race.py: until the first of several ends
cancellation.py    was the task cancelled, or only its gRPC call?

procfs.py          what the kernel knows of a process; one with its start time is never mistaken
cpu.py             whether there is CPU time enough; affinity.py: on which processor a busy process stays
lines.py           a process that does as it is told on stdin, and ends with whoever started it
filelock.py        one at a time among processes; who is killed lets go
trees.py           removing a tree of any shape
"""
