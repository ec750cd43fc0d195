"""Lists as tables: the rows are printed here, so that who shows them need not be sent the objects.

That is work that would else be the client's, and more than to send the objects as they are (see apiserver.flow.cost). So it is
done in portions, with turns for others in between.
"""

from collections.abc import Mapping
from typing import Any

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.services.context import Context
from apiserver.services.resource import ResourceService
from pinnace.api.resources import Resource
from pinnace.api.tables_pb2 import ListTableRequest, Table, TableColumnDefinition
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.printers import COLUMNS
from pinnace.printers.columns import Columns
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices

NAME = "NAME"


class TablesService:
    def __init__(self, services: Mapping[Resource[Any], ResourceService[Any]], clock: Clock) -> None:
        self._services = {resource.plural: service for resource, service in services.items()}
        self._clock = clock

    def stored_count(self, request: ListTableRequest) -> int:
        """As ResourceService's."""
        service = self._services.get(request.resource)
        return service.stored_count(request) if service is not None else 0

    async def list(self, request: ListTableRequest, context: Context) -> Table:
        """A page, of at most MAX_BATCH rows."""
        service = self._services.get(request.resource)
        if service is None:
            raise Rejected(errors.bad_request(f'resource: the server has no resource "{request.resource[:64]}"'))
        page = await service.page(ListRequest(namespace=request.namespace, options=request.options), context)
        columns = COLUMNS[request.resource]
        table = Table(metadata=page.metadata, columnDefinitions=_definitions(columns))
        with_metadata, now = request.includeObject == ListTableRequest.METADATA, self._clock.time()

        def print_one(obj: Any) -> None:
            table.rows.add(cells=columns.row(obj, now), object=obj.metadata if with_metadata else None)

        await in_slices(print_one, page.items, self._clock)
        return table


def _definitions(columns: Columns[Any]) -> list[TableColumnDefinition]:
    names = [*((name, 0) for name in columns.headers), *((name, 1) for name in columns.wide)]
    return [
        TableColumnDefinition(name=name, type="string", format="name" if name == NAME else "", priority=priority)
        for name, priority in names
    ]
