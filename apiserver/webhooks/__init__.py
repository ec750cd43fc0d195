"""Admission webhooks and admission policies: API objects that review writes (docs/admission.md).

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/ and
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""
