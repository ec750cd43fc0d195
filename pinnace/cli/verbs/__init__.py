"""One verb a file, loaded when it is used: the command of verb `x` is the attribute `x` of the module `x`.

Main's table (pinnace.cli.main) says in a sentence what each does.

    a local cluster       up, status, stop, start, kill, restart, down, doctor;
                          pki: certificates of clusters that `up` did not start
    showing objects       get, describe, explain, api_resources, events, top
    changing them         apply, diff, create, run, expose, edit, set, patch, delete, scale, rollout, label, annotate
    waiting               wait
    containers            logs, exec
    why a pod is where it is
                          why; sched: what the scheduler holds
    nodes                 cordon, uncordon, drain, taint, node; pod: crashes
    elections             leader
    who, with what        auth, config
    breaking, measuring   demo, chaos, check, bench
    the program itself    version, completion
"""
