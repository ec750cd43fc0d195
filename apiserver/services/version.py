"""Which version of the software this server runs."""

from apiserver.services.context import Context
from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo
from pinnace.runtime.build import version


class VersionService:
    async def get(self, request: GetVersionRequest, context: Context) -> VersionInfo:
        return VersionInfo(version=version())
