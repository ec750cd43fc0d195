"""CEL, the Common Expression Language, as Kubernetes 1.36 uses it: in rules of custom resources and in admission.

* `pinnace.cel.rules`: the rules of a schema (`x-kubernetes-validations`) on objects; `pinnace.cel.rule_checks`: their
  definition.
* `pinnace.cel.programs`: single expressions over `object`, `oldObject`, `request`, ...: match conditions and admission
  policies.

Values are plain JSON (dict, list, str, int, float, bool, None). No expression raises or runs long: errors are values, and the
cost of each evaluation is limited.
"""
