"""Which version of the software this server runs."""

from typing import Any

from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo
from pinnace.runtime.build import version


class VersionService:
    async def get(self, request: GetVersionRequest, context: Any) -> VersionInfo:
        return VersionInfo(version=version())
