"""Storage in etcd, over gRPC channels of our own and the messages and stubs that aetcd generated. Nothing else here knows etcd.

storage.py     EtcdStorage: the interface, one call each
members.py     channels to several endpoints, and which one is used now
errors.py      etcd's errors -> StorageError, once
codec.py       messages <-> the interface's values (pure)
watch.py       the watch stream: whole revisions, compaction, silence; streams.py: writing to streams that may have failed
space.py       getting out of NOSPACE after a compaction
credentials.py the options by which a program is told what to show to etcd

Programs of their own, for those who measure and test: calibrate.py (the yardstick), record.py (all that ever changes, as a
history), surgery.py (compaction, alarms, leadership).
"""

from apiserver.storage.etcd.storage import EtcdStorage

__all__ = ["EtcdStorage"]
