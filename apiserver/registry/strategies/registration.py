"""The strategy of API services.

Source: pkg/apis/apiregistration/validation and pkg/registry/apiservice of k8s.io/kube-aggregator 1.36.
"""

from collections.abc import Iterable

from pinnace.api import conditions, names
from pinnace.api.apiregistration_v1_pb2 import APIService, APIServiceSpec
from pinnace.api.groups import name_of
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.fields import invalid, required, unsupported, validate_port

MAX_GROUP_PRIORITY, MAX_VERSION_PRIORITY = 20000, 1000
_STATUSES = ("False", "True", "Unknown")


class APIServiceStrategy(StatusStrategy[APIService]):
    check_name = staticmethod(names.path_segment)

    def set_defaults(self, obj: APIService) -> None:
        if obj.spec.HasField("service") and not obj.spec.service.HasField("port"):
            obj.spec.service.port = 443

    def finish_create(self, obj: APIService) -> Iterable[str]:
        if not obj.spec.HasField("service"):
            message = "Local APIServices are always available"
            now = to_seconds(obj.metadata.creationTimestamp)
            conditions.set_condition(obj.status.conditions, "Available", "True", "Local", message, now)
        return super().finish_create(obj)

    def check_metadata(self, obj: APIService, out: list[Violation]) -> None:
        super().check_metadata(obj, out)
        wanted = name_of(obj.spec.group, obj.spec.version)
        if obj.metadata.name != wanted and not names.path_segment(obj.metadata.name):
            detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            out.append(invalid("metadata.name", obj.metadata.name, detail))

    def check_fields(self, obj: APIService, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.group and spec.version != "v1":
            out.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
        if spec.group:
            out.extend(invalid("spec.group", spec.group, problem) for problem in names.dns_subdomain(spec.group))
        out.extend(invalid("spec.version", spec.version, problem) for problem in names.dns_1035_label(spec.version))
        for field, value, most in (
            ("groupPriorityMinimum", spec.groupPriorityMinimum, MAX_GROUP_PRIORITY),
            ("versionPriority", spec.versionPriority, MAX_VERSION_PRIORITY),
        ):
            if not 0 < value <= most:
                out.append(invalid(f"spec.{field}", value, f"must be positive and less than {most}"))
        if spec.HasField("service"):
            _validate_service(spec, out)
            return
        if spec.caBundle:
            out.append(invalid("spec.caBundle", f"{len(spec.caBundle)} bytes", "local APIServices may not have a caBundle"))
        if spec.insecureSkipTLSVerify:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            out.append(invalid("spec.insecureSkipTLSVerify", True, detail))

    def check_status(self, obj: APIService, out: list[Violation]) -> None:
        for index, condition in enumerate(obj.status.conditions):
            if condition.status not in _STATUSES:
                out.append(unsupported(f"status.conditions[{index}].status", condition.status, _STATUSES))


def _validate_service(spec: APIServiceSpec, out: list[Violation]) -> None:
    missing = (field for field in ("namespace", "name") if not getattr(spec.service, field))
    out.extend(required(f"spec.service.{field}") for field in missing)
    validate_port(spec.service.port, "spec.service.port", out)
    if spec.insecureSkipTLSVerify and spec.caBundle:
        out.append(invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
