from pinnace.api import meta_v1_pb2 as _meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CustomResourceDefinition(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ObjectMeta
    spec: CustomResourceDefinitionSpec
    status: CustomResourceDefinitionStatus
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., spec: _Optional[_Union[CustomResourceDefinitionSpec, _Mapping]] = ..., status: _Optional[_Union[CustomResourceDefinitionStatus, _Mapping]] = ...) -> None: ...

class CustomResourceDefinitionList(_message.Message):
    __slots__ = ("metadata", "items")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_v1_pb2.ListMeta
    items: _containers.RepeatedCompositeFieldContainer[CustomResourceDefinition]
    def __init__(self, metadata: _Optional[_Union[_meta_v1_pb2.ListMeta, _Mapping]] = ..., items: _Optional[_Iterable[_Union[CustomResourceDefinition, _Mapping]]] = ...) -> None: ...

class CustomResourceDefinitionSpec(_message.Message):
    __slots__ = ("group", "names", "scope", "versions", "conversion", "preserveUnknownFields")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CONVERSION_FIELD_NUMBER: _ClassVar[int]
    PRESERVEUNKNOWNFIELDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    names: CustomResourceDefinitionNames
    scope: str
    versions: _containers.RepeatedCompositeFieldContainer[CustomResourceDefinitionVersion]
    conversion: CustomResourceConversion
    preserveUnknownFields: bool
    def __init__(self, group: _Optional[str] = ..., names: _Optional[_Union[CustomResourceDefinitionNames, _Mapping]] = ..., scope: _Optional[str] = ..., versions: _Optional[_Iterable[_Union[CustomResourceDefinitionVersion, _Mapping]]] = ..., conversion: _Optional[_Union[CustomResourceConversion, _Mapping]] = ..., preserveUnknownFields: _Optional[bool] = ...) -> None: ...

class CustomResourceDefinitionNames(_message.Message):
    __slots__ = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    PLURAL_FIELD_NUMBER: _ClassVar[int]
    SINGULAR_FIELD_NUMBER: _ClassVar[int]
    SHORTNAMES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LISTKIND_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    plural: str
    singular: str
    shortNames: _containers.RepeatedScalarFieldContainer[str]
    kind: str
    listKind: str
    categories: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, plural: _Optional[str] = ..., singular: _Optional[str] = ..., shortNames: _Optional[_Iterable[str]] = ..., kind: _Optional[str] = ..., listKind: _Optional[str] = ..., categories: _Optional[_Iterable[str]] = ...) -> None: ...

class CustomResourceDefinitionVersion(_message.Message):
    __slots__ = ("name", "served", "storage", "schema", "subresources", "additionalPrinterColumns", "deprecated", "deprecationWarning", "selectableFields")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SUBRESOURCES_FIELD_NUMBER: _ClassVar[int]
    ADDITIONALPRINTERCOLUMNS_FIELD_NUMBER: _ClassVar[int]
    DEPRECATED_FIELD_NUMBER: _ClassVar[int]
    DEPRECATIONWARNING_FIELD_NUMBER: _ClassVar[int]
    SELECTABLEFIELDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    served: bool
    storage: bool
    schema: CustomResourceValidation
    subresources: CustomResourceSubresources
    additionalPrinterColumns: _containers.RepeatedCompositeFieldContainer[CustomResourceColumnDefinition]
    deprecated: bool
    deprecationWarning: str
    selectableFields: _containers.RepeatedCompositeFieldContainer[SelectableField]
    def __init__(self, name: _Optional[str] = ..., served: _Optional[bool] = ..., storage: _Optional[bool] = ..., schema: _Optional[_Union[CustomResourceValidation, _Mapping]] = ..., subresources: _Optional[_Union[CustomResourceSubresources, _Mapping]] = ..., additionalPrinterColumns: _Optional[_Iterable[_Union[CustomResourceColumnDefinition, _Mapping]]] = ..., deprecated: _Optional[bool] = ..., deprecationWarning: _Optional[str] = ..., selectableFields: _Optional[_Iterable[_Union[SelectableField, _Mapping]]] = ...) -> None: ...

class CustomResourceValidation(_message.Message):
    __slots__ = ("openAPIV3Schema",)
    OPENAPIV3SCHEMA_FIELD_NUMBER: _ClassVar[int]
    openAPIV3Schema: JSONSchemaProps
    def __init__(self, openAPIV3Schema: _Optional[_Union[JSONSchemaProps, _Mapping]] = ...) -> None: ...

class JSONSchemaProps(_message.Message):
    __slots__ = ("raw",)
    RAW_FIELD_NUMBER: _ClassVar[int]
    raw: bytes
    def __init__(self, raw: _Optional[bytes] = ...) -> None: ...

class CustomResourceSubresources(_message.Message):
    __slots__ = ("status", "scale")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    status: CustomResourceSubresourceStatus
    scale: CustomResourceSubresourceScale
    def __init__(self, status: _Optional[_Union[CustomResourceSubresourceStatus, _Mapping]] = ..., scale: _Optional[_Union[CustomResourceSubresourceScale, _Mapping]] = ...) -> None: ...

class CustomResourceSubresourceStatus(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CustomResourceSubresourceScale(_message.Message):
    __slots__ = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    SPECREPLICASPATH_FIELD_NUMBER: _ClassVar[int]
    STATUSREPLICASPATH_FIELD_NUMBER: _ClassVar[int]
    LABELSELECTORPATH_FIELD_NUMBER: _ClassVar[int]
    specReplicasPath: str
    statusReplicasPath: str
    labelSelectorPath: str
    def __init__(self, specReplicasPath: _Optional[str] = ..., statusReplicasPath: _Optional[str] = ..., labelSelectorPath: _Optional[str] = ...) -> None: ...

class CustomResourceColumnDefinition(_message.Message):
    __slots__ = ("name", "type", "format", "description", "priority", "jsonPath")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    JSONPATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    format: str
    description: str
    priority: int
    jsonPath: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., format: _Optional[str] = ..., description: _Optional[str] = ..., priority: _Optional[int] = ..., jsonPath: _Optional[str] = ...) -> None: ...

class SelectableField(_message.Message):
    __slots__ = ("jsonPath",)
    JSONPATH_FIELD_NUMBER: _ClassVar[int]
    jsonPath: str
    def __init__(self, jsonPath: _Optional[str] = ...) -> None: ...

class CustomResourceConversion(_message.Message):
    __slots__ = ("strategy", "webhook")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    WEBHOOK_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    webhook: WebhookConversion
    def __init__(self, strategy: _Optional[str] = ..., webhook: _Optional[_Union[WebhookConversion, _Mapping]] = ...) -> None: ...

class WebhookConversion(_message.Message):
    __slots__ = ("clientConfig", "conversionReviewVersions")
    CLIENTCONFIG_FIELD_NUMBER: _ClassVar[int]
    CONVERSIONREVIEWVERSIONS_FIELD_NUMBER: _ClassVar[int]
    clientConfig: WebhookClientConfig
    conversionReviewVersions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clientConfig: _Optional[_Union[WebhookClientConfig, _Mapping]] = ..., conversionReviewVersions: _Optional[_Iterable[str]] = ...) -> None: ...

class WebhookClientConfig(_message.Message):
    __slots__ = ("service", "caBundle", "url")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CABUNDLE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    service: ServiceReference
    caBundle: bytes
    url: str
    def __init__(self, service: _Optional[_Union[ServiceReference, _Mapping]] = ..., caBundle: _Optional[bytes] = ..., url: _Optional[str] = ...) -> None: ...

class ServiceReference(_message.Message):
    __slots__ = ("namespace", "name", "path", "port")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    path: str
    port: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., path: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class CustomResourceDefinitionStatus(_message.Message):
    __slots__ = ("conditions", "acceptedNames", "storedVersions", "observedGeneration")
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTEDNAMES_FIELD_NUMBER: _ClassVar[int]
    STOREDVERSIONS_FIELD_NUMBER: _ClassVar[int]
    OBSERVEDGENERATION_FIELD_NUMBER: _ClassVar[int]
    conditions: _containers.RepeatedCompositeFieldContainer[CustomResourceDefinitionCondition]
    acceptedNames: CustomResourceDefinitionNames
    storedVersions: _containers.RepeatedScalarFieldContainer[str]
    observedGeneration: int
    def __init__(self, conditions: _Optional[_Iterable[_Union[CustomResourceDefinitionCondition, _Mapping]]] = ..., acceptedNames: _Optional[_Union[CustomResourceDefinitionNames, _Mapping]] = ..., storedVersions: _Optional[_Iterable[str]] = ..., observedGeneration: _Optional[int] = ...) -> None: ...

class CustomResourceDefinitionCondition(_message.Message):
    __slots__ = ("type", "status", "lastTransitionTime", "reason", "message", "observedGeneration")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LASTTRANSITIONTIME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OBSERVEDGENERATION_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    lastTransitionTime: _meta_v1_pb2.Time
    reason: str
    message: str
    observedGeneration: int
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., lastTransitionTime: _Optional[_Union[_meta_v1_pb2.Time, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., observedGeneration: _Optional[int] = ...) -> None: ...
