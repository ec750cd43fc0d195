from pinnace.api import metrics_v1beta1_pb2 as _metrics_v1beta1_pb2
from pinnace.api import verbs_pb2 as _verbs_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
