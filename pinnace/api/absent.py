"""The kinds of Kubernetes that are not here, as people type them or write them in manifests, and what comes nearest to each."""

from dataclasses import dataclass

_DEPLOYMENT = "a Deployment keeps pods running"
_CONFIGURATION = "write values into `env`; pods that refer to one run as if it were there, but not with --runtime process"
_CERTIFICATES = "who somebody is, a certificate says: `pinnace pki DIR --user NAME`; bind roles to users and groups"
_ROUTING = "nothing is routed here; a Service has EndpointSlices, which say where its pods are"
_KINDS = "the kinds are fixed; `pinnace api-resources` shows them"
_ADMISSION = "the API servers have a file that names webhooks; see docs/admission.md"
_CLAIMS = "a PersistentVolumeClaim of a StorageClass asks for storage; see docs/workloads.md"
_DEVICES = "extended resources of nodes, such as example.com/gpu, are requested like cpu"


@dataclass(frozen=True, slots=True)
class Absent:
    kind: str
    plural: str
    """In the kind's letters."""
    instead: str
    """What to do, for a hint."""
    short_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """ "pinnace has no NetworkPolicies"."""
        return f"pinnace has no {self.plural}"


ABSENT = (
    Absent("APIService", "APIServices", _KINDS),
    Absent("CertificateSigningRequest", "CertificateSigningRequests", _CERTIFICATES, ("csr",)),
    Absent(
        "ComponentStatus",
        "componentstatuses",
        "`pinnace doctor` says what is wrong; `pinnace status` shows a local cluster",
        ("cs",),
    ),
    Absent("ConfigMap", "ConfigMaps", _CONFIGURATION, ("cm",)),
    Absent(
        "ControllerRevision", "ControllerRevisions", "`pinnace rollout history deployment/NAME` shows those of a Deployment"
    ),
    Absent("CronJob", "CronJobs", "a Job runs once; `pinnace create -f` of one with generateName, from cron", ("cj",)),
    Absent("CSIDriver", "CSIDrivers", _CLAIMS),
    Absent("CSIStorageCapacity", "CSIStorageCapacities", _CLAIMS),
    Absent("CustomResourceDefinition", "CustomResourceDefinitions", _KINDS, ("crd", "crds")),
    Absent(
        "DaemonSet", "DaemonSets", f"{_DEPLOYMENT}; one for each node with podAntiAffinity on kubernetes.io/hostname", ("ds",)
    ),
    Absent("DeviceClass", "DeviceClasses", _DEVICES),
    Absent("Endpoints", "Endpoints", "`pinnace get endpointslices` shows where the pods of services are", ("ep",)),
    Absent("FlowSchema", "FlowSchemas", "flow control is the API servers' own"),
    Absent("HorizontalPodAutoscaler", "HorizontalPodAutoscalers", "`pinnace scale deployment/NAME --replicas N`", ("hpa",)),
    Absent("Ingress", "Ingresses", _ROUTING, ("ing",)),
    Absent("IngressClass", "IngressClasses", _ROUTING),
    Absent("MutatingWebhookConfiguration", "MutatingWebhookConfigurations", _ADMISSION),
    Absent("NetworkPolicy", "NetworkPolicies", _ROUTING, ("netpol",)),
    Absent("PodTemplate", "PodTemplates", "a Deployment or a Job has the template of its pods in its spec"),
    Absent("PriorityLevelConfiguration", "PriorityLevelConfigurations", "flow control is the API servers' own"),
    Absent("ReplicationController", "ReplicationControllers", _DEPLOYMENT, ("rc",)),
    Absent("ResourceClaim", "ResourceClaims", _DEVICES),
    Absent("ResourceClaimTemplate", "ResourceClaimTemplates", _DEVICES),
    Absent("ResourceSlice", "ResourceSlices", _DEVICES),
    Absent("RuntimeClass", "RuntimeClasses", "all containers of a fleet are run the same way: `pinnace-kubelet --runtime`"),
    Absent("Secret", "Secrets", _CONFIGURATION),
    Absent("ServiceAccount", "ServiceAccounts", _CERTIFICATES, ("sa",)),
    Absent("StatefulSet", "StatefulSets", f"{_DEPLOYMENT}, without names or volumes of their own", ("sts",)),
    Absent("TokenRequest", "TokenRequests", _CERTIFICATES, ("token",)),
    Absent("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicies", _ADMISSION),
    Absent("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBindings", _ADMISSION),
    Absent("ValidatingWebhookConfiguration", "ValidatingWebhookConfigurations", _ADMISSION),
    Absent("VolumeAttachment", "VolumeAttachments", "the kubelet says it: `pinnace describe pod NAME` shows what it waits for"),
    Absent("VolumeAttributesClass", "VolumeAttributesClasses", _CLAIMS, ("vac",)),
)


def absent(name: str) -> Absent | None:
    """As `resources.by_name`: plural, kind or short name, in any case."""
    wanted = name.lower()
    return next((each for each in ABSENT if wanted in (each.plural.lower(), each.kind.lower(), *each.short_names)), None)
