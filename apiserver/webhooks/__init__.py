"""Webhooks: external services that change or refuse writes (docs/admission.md).

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""
