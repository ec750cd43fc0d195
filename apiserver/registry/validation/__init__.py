"""Validation: all violations of an object, with Kubernetes' messages and field paths.

This package has the rules that several kinds share, and the rules of pods and services. Other rules are in the strategy of the
kind (`apiserver.registry.strategies`).

Each function appends violations to the list `out`, so that the validation of a valid object allocates nothing: this is a hot
path. A check reads each field once, because reading a protobuf field is expensive.

Fields that this version does not model travel as unknown bytes and are not validated.
"""
