"""The command line: `pinnace VERB`. A verb is a file in verbs/, and only the one that is used is loaded. It puts together what
the packages beside it can do; what every command needs are the modules here.

verbs/          the commands: flags, help, examples

objects/        which objects are meant, and getting them
output/         what they look like: tables, and `-o`
describe/       the texts of `describe`; jsonpath/: templates and paths of kubectl's dialect
explain/        what fields objects have, and what they mean
changes/        applying, deleting, draining, labelling, rolling out
waiting/        until objects are as wanted
logs/           what was logged, as it comes
why/            the scheduler's explanation of a pod
stories/        a cluster that is being broken, told: `demo` and `chaos`
doctor/         what a cluster and this client need, and whether it is there
local/          what the verbs of local clusters share
terminal/       the standard streams, and what is drawn on a terminal

entry.py        where the program begins: quiet about an interrupt while the rest is imported
main.py         all verbs by name; unsupported.py: those of kubectl that are not there, and flags
command.py      what a verb is: flags, help, loading it
settings.py     the flags of every verb; options.py: those of several
session.py      one command's connection, and its deadline
servers.py      where the servers are said to be, and whether one answers
outcomes.py     how a command can end: exit codes, and what verbs raise
errors.py       how that is told; client_errors.py: what errors of the client library mean to a person
"""
