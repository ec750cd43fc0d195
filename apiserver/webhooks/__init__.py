"""Webhooks: services outside the API server that have a say in what is written (docs/admission.md).

    configuration.py  what the file says: which webhooks there are, and what concerns each
    loading.py        from that file to webhooks that can be asked
    admission.py      asks those that a write concerns: first those that change it, then those that judge it
    webhook.py        one of them: questions of one moment go together; time, failures, counts
    rpc.py            how it is reached: pinnace.admission.v1.Admission over gRPC

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""
