"""Objects and options in request bodies: JSON, YAML or protobuf, validated according to `fieldValidation`.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.codec import IGNORE, STRICT, WARN, Problem, decode_valid_part
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.go_time import TIME_ERROR
from pinnace.api.meta_v1_pb2 import DeleteOptions, PatchOptions
from pinnace.api.patch import with_reset
from pinnace.api.resources import CustomResource
from pinnace.api.status import Violation
from pinnace.apiextensions.definitions import read_schemas
from pinnace.apiextensions.metadata import OBJECT_META
from pinnace.apiextensions.structs import StructError, read_struct
from pinnace.gateway import api_resources
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.errors import invalid_object, invalid_options
from pinnace.gateway.http import JSON, ApiStatus, Request, bad_request, dump_json
from pinnace.gateway.media_types import (
    APPLY,
    PROTOBUF,
    YAML,
    parse_body,
    parse_content_type,
    unrecognized_object,
    unwrap_protobuf,
)
from pinnace.gateway.workers import LARGE_YAML, is_large_json

M = TypeVar("M", bound=Message)

_POLICIES = ("Foreground", "Background", "Orphan")
_GO_TYPE_META = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
"""The type into which Kubernetes reads the type of a body, as Go writes it."""
_TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")
MAX_MANAGER = 128
"""The maximum length of a field manager's name in bytes."""
MAX_WARNINGS = 10
"""The maximum number of warnings about unknown or duplicate fields of a request."""


def read_field_validation(request: Request) -> str:
    """Return the query parameter. Raises ApiStatus (422)."""
    value = request.param("fieldValidation") or WARN
    if value not in (STRICT, WARN, IGNORE):
        message = f'Unsupported value: "{value[:32]}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid_options(_options_kind(request), "fieldValidation", message)
    return value


def _options_kind(request: Request) -> str:
    return {"PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}.get(request.method, "CreateOptions")


class BodyType(NamedTuple):
    """The type of a request body. The first of the accepted API versions is the default."""

    kind: str
    api_versions: Sequence[str]


def body_type_of(resource: ApiResource) -> BodyType:
    return BodyType(resource.kind, (resource.api_version,))


def read_object(request: Request, resource: ApiResource, subresource: str = "") -> Any:
    """Decode the object of a create or update. Raises ApiStatus.

    Unknown fields of a status that the server resets are accepted: exported objects contain statuses of other versions
    (kubernetes#90066).
    """
    assert resource.resource is not None
    if resource.custom is not None:
        return _read_custom_object(request, resource)
    message: type[Any] = resource.resource.message
    return read_message(
        request, message, body_type_of(resource), read_field_validation(request), resets_status=subresource != "status"
    )


def _read_custom_object(request: Request, resource: ApiResource) -> CustomObject:
    """Decode a custom object. Unknown fields are refused or reported here, and removed by the API server. Raises ApiStatus."""
    validation, expected = read_field_validation(request), body_type_of(resource)
    complaints: list[str] = []
    note = None if validation == IGNORE else lambda key: complaints.append(f'duplicate field "{key}"')
    media_type = parse_content_type(request.headers.get("content-type", ""), (JSON, YAML))
    data = parse_body(request.body, media_type, note, kind=expected.kind)
    if not isinstance(data, dict):
        raise _non_object_status(request.body, expected.kind, data)
    _check_custom_type(request, data, resource)
    row = cast(CustomResource, resource.resource)
    obj, problems = decode_valid_part(row, with_reset(data))
    if wrong := [problem for problem in problems if not problem.unknown]:
        raise _metadata_type_status(expected, data.get("metadata")) or _decoding_status(expected, wrong)
    complaints += [f'unknown field "{problem.field}"' for problem in problems]
    _reject_or_warn(request, expected, validation, complaints)
    return obj


def _check_custom_type(request: Request, data: Mapping[str, Any], resource: ApiResource) -> None:
    """Raise ApiStatus for a custom object without a kind, or with another kind (422) or apiVersion (400)."""
    types = data.get("apiVersion", ""), data.get("kind", "")
    if not all(isinstance(value, str) for value in types):
        raise unrecognized_object(request.body, resource.kind, "couldn't get version/kind; json parse error: expected strings")
    api_version, kind = (cast(str, value) for value in types)
    if not kind:
        body = request.body.decode(errors="replace")
        raise unrecognized_object(request.body, resource.kind, f"Object 'Kind' is missing in '{body[:256]}'")
    if api_version != resource.api_version:
        if api_version and read_field_validation(request) == WARN:
            request.warnings += [f'unknown field "{name}"' for name in sorted(data) if name not in _TYPE_AND_METADATA]
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        metadata = data.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        violation = Violation("kind", f'Invalid value: "{kind[:64]}": must be {resource.kind}')
        raise invalid_object(resource, str(name), (violation,), kind[:64])


def read_message(request: Request, message: type[M], expected: BodyType, validation: str, *, resets_status: bool = False) -> M:
    """Decode a message of the expected type. `validation`: Strict, Warn or Ignore. `resets_status`: unknown fields of the
    status are accepted. Raises ApiStatus."""
    complaints: list[str] = []
    note = None if validation == IGNORE else lambda key: complaints.append(f'duplicate field "{key}"')
    data = read_typed(request, expected, note)
    if isinstance(data, bytes):
        return decode_message(message, data)
    obj, problems = decode_valid_part(message, with_reset(data))
    unknown = [problem for problem in problems if problem.unknown and not (problem.in_status and resets_status)]
    complaints += [f'unknown field "{problem.field}"' for problem in unknown]
    if wrong := [problem for problem in problems if not problem.unknown]:
        raise _decoding_status(expected, wrong)
    if message is CustomResourceDefinition:
        complaints += _find_unknown_in_schemas(data, expected)
    _reject_or_warn(request, expected, validation, complaints)
    return obj


def _find_unknown_in_schemas(data: Any, expected: BodyType) -> list[str]:
    """Return complaints about the schemas of a definition, which is changed. Its message has them as JSON. Raises ApiStatus."""
    try:
        return [f'unknown field "{path}"' for path in read_schemas(data)]
    except StructError as error:
        raise _decoding_status(expected, [Problem((), str(error))]) from None


def is_large(request: Request) -> bool:
    """Return whether the body should be decoded in a worker process."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == PROTOBUF:
        return False
    if media_type in (YAML, APPLY) and request.body.lstrip()[:1] != b"{":
        return len(request.body) > LARGE_YAML
    return is_large_json(request.body)


def decode_object(request: Request, resource: tuple[str, str, str], subresource: str) -> tuple[bytes, list[str]]:
    """Decode the object of a create or update in a worker process, and return its encoding and the warnings. `resource`: the
    group, version and plural. Raises ApiStatus."""
    api_resource = api_resources.find_resource(*resource)
    assert api_resource is not None
    encoded: bytes = read_object(request, api_resource, subresource).SerializeToString()
    return encoded, request.warnings


def decode_configuration(request: Request) -> tuple[bytes, list[str]]:
    """Read a configuration in a worker process, and return it with the warnings. Raises ApiStatus."""
    return read_configuration(request), request.warnings


def read_configuration(request: Request) -> bytes:
    """Read the configuration of a server-side apply, a YAML or JSON object, and return it as JSON. Raises ApiStatus."""
    validation = read_field_validation(request)
    complaints: list[str] = []
    note = None if validation == IGNORE else lambda key: complaints.append(f'key "{key.rpartition(".")[2]}" already set in map')
    try:
        data = parse_body(request.body, JSON, note)
    except ApiStatus:
        try:
            data = parse_body(request.body, YAML)
        except ApiStatus as error:
            raise bad_request(f"error decoding YAML: {error.message}") from None
    if not isinstance(data, dict):
        raise bad_request("error decoding YAML: expected an object")
    if complaints and validation == STRICT:
        raise bad_request(f"error strict decoding YAML: {', '.join(complaints)}")
    request.warnings += complaints[:MAX_WARNINGS]
    return dump_json(data)


def read_field_manager(request: Request) -> str:
    """Return the manager of the fields that a request changes: the query parameter, or else the name of the program. Raises
    ApiStatus (422)."""
    if manager := request.param("fieldManager"):
        kind = _options_kind(request)
        if len(manager.encode()) > MAX_MANAGER:
            raise invalid_options(kind, "fieldManager", f"Too long: may not be more than {MAX_MANAGER} bytes")
        if not manager.isprintable():
            raise invalid_options(kind, "fieldManager", _find_unprintable(manager))
        return manager
    agent = request.headers.get("user-agent", "").partition("/")[0]
    return "".join(item for item in agent if item.isprintable())[:MAX_MANAGER]


def set_write_options(request: Request, options: Any) -> None:
    """Fill the options of a create, an update or a patch. Fields that the client has not sent stay empty, because admission
    shows the options to webhooks. Raises ApiStatus (422)."""
    manager, validation = read_field_manager(request), read_field_validation(request)
    options.dryRun.extend(read_dry_run(request))
    if request.param("fieldManager"):
        options.fieldManager = manager
    else:
        options.defaultManager = manager
    if request.param("fieldValidation"):
        options.fieldValidation = validation
    elif isinstance(options, PatchOptions):
        options.defaultFieldValidation = validation


def _find_unprintable(manager: str) -> str:
    """Return the error about the first character that cannot be printed, with its position in bytes."""
    index = next(index for index, character in enumerate(manager) if not character.isprintable())
    position = len(manager[:index].encode())
    quoted = "".join(json.dumps(item, ensure_ascii=not item.isprintable())[1:-1] for item in manager)
    return f'Invalid value: "{quoted}": invalid character U+{ord(manager[index]):04X} (at position {position})'


def read_patch_options(request: Request, *, applies: bool) -> PatchOptions:
    """Read the query parameters of a patch. Raises ApiStatus (422)."""
    options = PatchOptions()
    set_write_options(request, options)
    if applies:
        if not request.param("fieldManager"):
            raise invalid_options("PatchOptions", "fieldManager", "Required value: is required for apply patch")
        options.force = request.flag("force")
    elif request.param("force"):
        raise invalid_options("PatchOptions", "force", "Forbidden: may not be specified for non-apply patch")
    return options


def read_typed(
    request: Request, expected: BodyType, on_duplicate: Callable[[str], None] | None = None
) -> bytes | dict[str, Any]:
    """Read a body of the expected type: the encoded message of a protobuf body, or the fields of a JSON or YAML body without
    apiVersion and kind. Raises ApiStatus: 400 for a body of another type, 415 for an unknown media type."""
    media_type = parse_content_type(request.headers.get("content-type", ""))
    if media_type == PROTOBUF:
        unwrapped = unwrap_protobuf(request.body)
        check_type(unwrapped.api_version, unwrapped.kind, expected)
        return unwrapped.data
    data = parse_body(request.body, media_type, on_duplicate, kind=expected.kind)
    if not isinstance(data, dict):
        raise _non_object_status(request.body, expected.kind, data)
    types = [data.pop(name, None) or "" for name in ("apiVersion", "kind")]
    for name, value in zip(("apiVersion", "kind"), types, strict=True):
        if not isinstance(value, str):
            problem = f"json: cannot unmarshal {_go_type_name(value)} into Go struct field .{name} of type string"
            raise unrecognized_object(request.body, expected.kind, f"couldn't get version/kind; json parse error: {problem}")
    api_version, kind = types
    check_type(api_version, kind, expected)
    return data


def _non_object_status(body: bytes, kind: str, value: Any) -> ApiStatus:
    """Return a 400 for a body that is another value than an object, in the words of Go's parser."""
    if value is None:
        return unrecognized_object(body, kind, "expected an object")
    problem = f"json: cannot unmarshal {_go_type_name(value)} into Go value of type {_GO_TYPE_META}"
    return unrecognized_object(body, kind, f"couldn't get version/kind; json parse error: {problem}")


def _go_type_name(value: Any) -> str:
    """Return the type of a JSON value in the words of Go's parser."""
    return {dict: "object", list: "array", bool: "bool", str: "string"}.get(type(value), "number")


def check_type(api_version: str, kind: str, expected: BodyType) -> None:
    """Raise ApiStatus (400) for an object of another type. A missing apiVersion or kind has its default."""
    api_version, kind = api_version or expected.api_versions[0], kind or expected.kind
    if kind == expected.kind and api_version in expected.api_versions:
        return
    group, _, version = api_version.rpartition("/")
    if not api_resources.is_kind(group, version, kind):
        problem = f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'
    elif kind == expected.kind:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({expected.api_versions[0]})"
        )
    else:
        package = expected.api_versions[0].rpartition("/")[0].partition(".")[0] or "core"
        problem = f"converting ({version}.{kind}) to ({package}.{expected.kind}): unknown conversion"
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {expected.kind}: {problem}')


def decode_message(message: type[M], data: bytes) -> M:
    """Decode a protobuf message. Raises ApiStatus (400)."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise bad_request(f"unable to decode the object: {error}") from None


def _reject_or_warn(request: Request, expected: BodyType, validation: str, complaints: list[str]) -> None:
    """Reject unknown and duplicate fields, or add warnings."""
    if not complaints or validation == IGNORE:
        return
    if validation == STRICT:
        raise _unhandled_body_status(expected, f"strict decoding error: {', '.join(complaints)}")
    request.warnings += complaints[:MAX_WARNINGS]


def _metadata_type_status(expected: BodyType, metadata: Any) -> ApiStatus | None:
    """Return the error about metadata of a wrong type in the words of Go's parser; None if it finds none."""
    if not isinstance(metadata, dict):
        return _unhandled_body_status(
            expected, f"json: cannot unmarshal {_go_type_name(metadata)} into Go value of type v1.ObjectMeta"
        )
    try:
        read_struct(metadata, OBJECT_META, [])
    except StructError as error:
        return _unhandled_body_status(expected, str(error))
    return None


def _decoding_status(expected: BodyType, problems: list[Problem]) -> ApiStatus:
    return _unhandled_body_status(expected, "; ".join(map(_decoding_error, problems[:MAX_WARNINGS])))


def _unhandled_body_status(expected: BodyType, text: str) -> ApiStatus:
    kind, version = expected.kind, expected.api_versions[0].rpartition("/")[2]
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {text}')


def _decoding_error(problem: Problem) -> str:
    """Return the error without its field if it is Go's error about a time, which does not contain it."""
    has_field = problem.field and not problem.message.startswith(TIME_ERROR)
    return f"{problem.field}: {problem.message}" if has_field else problem.message


def read_delete_options(request: Request) -> DeleteOptions:
    """Read the options from the body. Query parameters set fields that the body does not contain. Raises ApiStatus."""
    options = _read_options_body(request)
    grace = request.number("gracePeriodSeconds")
    if grace is not None and not options.HasField("gracePeriodSeconds"):
        options.gracePeriodSeconds = grace
    if not options.HasField("propagationPolicy") and not options.HasField("orphanDependents"):
        if policy := request.param("propagationPolicy"):
            options.propagationPolicy = policy
        if request.param("orphanDependents"):
            options.orphanDependents = request.flag("orphanDependents")
    if not options.dryRun:
        options.dryRun.extend(request.query.get("dryRun", ()))
    validate_delete_options(options)
    return options


def validate_delete_options(options: DeleteOptions) -> None:
    """Validate the options of a delete or eviction. Raises ApiStatus (422)."""
    policy = options.propagationPolicy
    if options.HasField("orphanDependents") and options.HasField("propagationPolicy"):
        message = f'Invalid value: "{policy[:32]}": orphanDependents and deletionPropagation cannot be both set'
        raise invalid_options("DeleteOptions", "propagationPolicy", message)
    if policy not in ("", *_POLICIES):
        supported = ", ".join(f'"{item}"' for item in (*_POLICIES, "nil"))
        message = f'Unsupported value: "{policy[:32]}": supported values: {supported}'
        raise invalid_options("DeleteOptions", "propagationPolicy", message)
    check_dry_run(options.dryRun, "DeleteOptions")


_DELETE_OPTIONS = BodyType(
    "DeleteOptions",
    (
        "v1",
        "meta.k8s.io/v1",
        *sorted({api_resource.api_version for api_resource in api_resources.SERVED if api_resource.group}),
    ),
)
"""Options can have the API version of any resource, as in Kubernetes."""


def _read_options_body(request: Request) -> DeleteOptions:
    """Unknown fields are ignored: deletes have no `fieldValidation`."""
    return read_message(request, DeleteOptions, _DELETE_OPTIONS, IGNORE) if request.body else DeleteOptions()


def read_dry_run(request: Request) -> list[str]:
    """Return the query parameter. Raises ApiStatus (422)."""
    result = list(request.query.get("dryRun", ()))
    check_dry_run(result, _options_kind(request))
    return result


def check_dry_run(values: Sequence[str], kind: str) -> None:
    """Validate dryRun. `kind`: the kind of the options. Raises ApiStatus (422)."""
    if any(value != "All" for value in values):
        given = ",".join(f'"{value[:32]}"' for value in values[:2])
        raise invalid_options(kind, "dryRun", f'Unsupported value: [{given}]: supported values: "All"')
