"""Score plugins for clusters with GPUs, as examples of policies. They need the plugin GpuShare in the same profile.

A profile that enables one of them disables the scores of the default plugins; see docs/studies.md.
"""
