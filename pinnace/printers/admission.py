"""The tables of admission webhooks, admission policies and their bindings.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from pinnace.api.admissionregistration_v1_pb2 import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    MutatingWebhookConfiguration,
    ParamRef,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
)
from pinnace.printers.columns import Columns, format_age

AnyWebhookConfiguration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
AnyPolicy = MutatingAdmissionPolicy | ValidatingAdmissionPolicy
AnyBinding = MutatingAdmissionPolicyBinding | ValidatingAdmissionPolicyBinding

_UNSET = "<unset>"


def webhook_configuration_row(configuration: AnyWebhookConfiguration, now: float) -> tuple[str, ...]:
    metadata = configuration.metadata
    return metadata.name, str(len(configuration.webhooks)), format_age(metadata.creationTimestamp, now)


WEBHOOK_CONFIGURATIONS = Columns(headers=("NAME", "WEBHOOKS", "AGE"), wide=(), row=webhook_configuration_row)


def policy_row(policy: AnyPolicy, number: int, now: float) -> tuple[str, ...]:
    """`number`: of mutations or validations."""
    spec, metadata = policy.spec, policy.metadata
    kind = f"{spec.paramKind.apiVersion}/{spec.paramKind.kind}" if spec.HasField("paramKind") else _UNSET
    return metadata.name, str(number), kind, format_age(metadata.creationTimestamp, now)


VALIDATING_ADMISSION_POLICIES = Columns[ValidatingAdmissionPolicy](
    headers=("NAME", "VALIDATIONS", "PARAMKIND", "AGE"),
    wide=(),
    row=lambda policy, now: policy_row(policy, len(policy.spec.validations), now),
)
MUTATING_ADMISSION_POLICIES = Columns[MutatingAdmissionPolicy](
    headers=("NAME", "MUTATIONS", "PARAMKIND", "AGE"),
    wide=(),
    row=lambda policy, now: policy_row(policy, len(policy.spec.mutations), now),
)


def format_param_ref(ref: ParamRef) -> str:
    """ "namespace/name", "*/name" without a namespace, or the selector in Go's form."""
    if ref.name:
        return f"{ref.namespace or '*'}/{ref.name}"
    labels = "".join(f"{key}: {value}," for key, value in sorted(ref.selector.matchLabels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{item.key},Operator:{item.operator},Values:[{' '.join(item.values)}],}},"
        for item in ref.selector.matchExpressions
    )
    matched = f"MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},"
    return f"&LabelSelector{{{matched}}}"


def binding_row(binding: AnyBinding, now: float) -> tuple[str, ...]:
    spec, metadata = binding.spec, binding.metadata
    ref = format_param_ref(spec.paramRef) if spec.HasField("paramRef") else _UNSET
    return metadata.name, spec.policyName, ref, format_age(metadata.creationTimestamp, now)


BINDINGS = Columns(headers=("NAME", "POLICYNAME", "PARAMREF", "AGE"), wide=(), row=binding_row)
