"""CustomResourceDefinitions: schemas, and what they mean for custom objects.

Everything here is a pure function of parsed JSON (dicts, lists, scalars), without I/O and clocks. Users write schemas,
definitions and objects, so each function is bounded: work is linear in the sizes of its arguments.
"""
