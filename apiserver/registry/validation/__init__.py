"""Validation: what is wrong with an object, all of it, in Kubernetes' words and by field path.

Here are the rules that several kinds share, and those that fill a file of their own (of pods, of traffic to services). The
others are in the strategy of their kind (`apiserver.registry.strategies`).

Functions of values. Each appends what it finds to the list that it is given (`out`), so that a sound object costs no garbage:
this is a hot path. A check reads each field once, because reading one out of protobuf is what costs.

Fields that this version does not model travel as unknown bytes and are not judged.
"""
