"""Our verbs; those of Kubernetes are kubectl's (pinnace.cli.table). Each module is imported when its verb is used; the command
of verb `x` is the attribute `x` of the module `x`, or of the module that `pinnace.cli.main.MODULES` names.

    local clusters          up, status, stop, start, kill, restart, down, doctor; pki for clusters that `up` did not start
    components              logs
    scheduling of a pod     why, trace, sched
    faults of nodes, pods   node, pod
    elections and etcd      leader, etcd
    faults and measurements demo, chaos, check, bench
    views and lessons       ui, timeline, lab
    the program             version, completion
"""
