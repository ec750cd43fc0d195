"""Malformed, huge and hostile messages against a live API server, which must not mind.

    sound.py, sound.yaml   requests that are as they should be, for every method of the API: what is spoiled below
    values.py              single values that nobody expects, by the name and type of their field
    perturb.py             spoils a message field by field; mutate.py spoils its bytes; offspring.py: what comes of it
    inputs.py              inputs that are kept, and sent first in every run: what has reached something new, in corpus/,
                           and what a server has minded, in found/; with them, hostile pods
    explore.py             finds such inputs: coverage-guided, in-process, without a transport
    shots.py               what is sent as number N of a seed, as whom, how, and with which patience
    calls.py, live.py      sends it over gRPC with certificates to a real process before a real etcd
    judge.py, run.py       says what of it the server must not have done; probe.py, pulse.py: is it still well, and quick?

    make fuzz MESSAGES=20000 SEED=1          a run; what is found is told with the command that sends that message again
    make fuzz-explore FOR=60 SEED=1          grows the corpus: wanted when the API has grown

A message is found again by its seed and number. Each finding has a regression test.
"""
