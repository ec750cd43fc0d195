"""Validation: the violations of an object, with Kubernetes' messages and field paths.

This package contains the rules that several kinds share, and the rules of pods. The other rules are in the strategy of the kind
(`pinnace.apiserver.registry.strategies`).

Each function appends violations to the list `out`, so that the validation of a valid object allocates nothing: this is a hot
path. A check reads each field once, because reads of protobuf fields are slow.

Fields that this version does not model stay in the message as unknown fields, and are not validated.
"""
