"""The verbs of `pinnace`. Each module is imported when its verb is used; the command of verb `x` is the attribute `x` of the
module `x`, or of the module that `pinnace.cli.main.MODULES` names.

    local clusters          up, status, stop, start, kill, restart, down, doctor; pki for clusters that `up` did not start
    reading objects         get, describe, explain, api-resources, events, top
    changing objects        apply, diff, create, run, expose, edit, set, patch, delete, scale, rollout, label, annotate
    waiting                 wait
    containers              logs, exec
    scheduling of a pod     why, trace, sched
    nodes                   cordon, uncordon, drain, taint, node; pod for crashes
    elections and etcd      leader, etcd
    users                   auth, config
    faults and measurements demo, chaos, check, bench
    views and lessons       ui, timeline, lab
    the program             version, completion
"""
