"""Ten charts for helm in the shapes of the most used public ones. One set of templates renders the values of each chart.

`write_chart(CHARTS["redis"], folder)` writes a chart; `Chart.subcharts` become its dependencies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TEMPLATES: Mapping[str, str] = {
    "_helpers.tpl": """
{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "name" -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end }}
{{- define "pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "labels" $root | nindent 4 }}
    component: {{ .name }}
  annotations:
    checksum/config: {{ toYaml $root.Values.config | sha256sum }}
    pinnace.io/cpu-usage: 5m
    {{- with mergeOverwrite (dict) (.annotations | default dict) ($root.Values.podAnnotations | default dict) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "name" $root }}
  securityContext: {runAsNonRoot: true, runAsUser: 1001, fsGroup: 1001, seccompProfile: {type: RuntimeDefault}}
  {{- if .job }}
  restartPolicy: Never
  {{- else }}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {component: {{ .name }}}}
  {{- end }}
  {{- if .init }}
  initContainers:
  - {name: prepare, image: "{{ $root.Chart.Name }}:{{ $root.Values.global.tag }}", command: [sh, -c, {{ .init | quote }}]}
  {{- end }}
  containers:
  - name: main
    image: "{{ $root.Chart.Name }}:{{ $root.Values.global.tag }}"
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env:
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    {{- if $root.Values.password }}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: {{ include "name" $root }}, key: password}}}
    {{- end }}
    envFrom: [{configMapRef: {name: {{ include "name" $root }}}}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    {{- if .port }}
    ports: [{name: main, containerPort: {{ .port }}}]
    readinessProbe: {tcpSocket: {port: main}, periodSeconds: 1}
    livenessProbe: {exec: {command: [ping]}, initialDelaySeconds: 30}
    {{- end }}
    {{- if and (not .job) (or .storage .scratch) }}
    volumeMounts: [{name: data, mountPath: /data}]
    {{- end }}
  {{- if .scratch }}
  volumes:
  - name: data
    {{- if eq .scratch "claim" }}
    persistentVolumeClaim: {claimName: {{ include "name" $root }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  {{- end }}
{{- end }}
""",
    "workloads.yaml": """
{{- range $name, $workload := .Values.workloads }}
{{- $full := printf "%s-%s" (include "name" $) $name }}
---
apiVersion: apps/v1
kind: {{ $workload.kind }}
metadata:
  name: {{ $full }}
  labels: {{- include "labels" $ | nindent 4 }}
spec:
  {{- if and (ne $workload.kind "DaemonSet") (not $workload.hpa) }}
  replicas: {{ $workload.replicas | default 1 }}
  {{- end }}
  selector: {matchLabels: {app.kubernetes.io/instance: {{ $.Release.Name }}, component: {{ $name }}}}
  {{- if eq $workload.kind "StatefulSet" }}
  serviceName: {{ $full }}-headless
  podManagementPolicy: {{ $workload.policy | default "OrderedReady" }}
  {{- if $workload.storage }}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: {{ $workload.storage }}}}}
  {{- end }}
  {{- end }}
  template: {{- include "pod" (mergeOverwrite (dict "root" $ "name" $name) $workload) | nindent 4 }}
{{- if $workload.port }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ $full }}, labels: {component: {{ $name }}}}
spec:
  type: {{ $workload.service | default "ClusterIP" }}
  selector: {app.kubernetes.io/instance: {{ $.Release.Name }}, component: {{ $name }}}
  ports: [{name: main, port: {{ $workload.port }}, targetPort: main}]
{{- end }}
{{- if eq $workload.kind "StatefulSet" }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ $full }}-headless}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app.kubernetes.io/instance: {{ $.Release.Name }}, component: {{ $name }}}
  ports: [{name: main, port: {{ $workload.port }}, targetPort: main}]
{{- end }}
{{- with $workload.hpa }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{ $full }}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ $workload.kind }}, name: {{ $full }}}
  minReplicas: {{ .min }}
  maxReplicas: {{ .max }}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
{{- end }}
{{- with $workload.pdb }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: {{ $full }}}
spec:
  {{- toYaml . | nindent 2 }}
  selector: {matchLabels: {app.kubernetes.io/instance: {{ $.Release.Name }}, component: {{ $name }}}}
{{- end }}
{{- end }}
""",
    "objects.yaml": """
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ include "name" . }}, annotations: {chart: {{ .Chart.Name }}-{{ .Chart.Version }}}}
automountServiceAccountToken: {{ not (empty .Values.rules) }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ include "name" . }}, labels: {{ include "labels" . | fromYaml | toJson }}}
data:
  {{- range $key, $value := .Values.config }}
  {{ $key }}: {{ tpl $value $ | quote }}
  {{- end }}
{{- if .Values.password }}
{{- $stored := lookup "v1" "Secret" .Release.Namespace (include "name" .) }}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ include "name" . }}}
data: {password: {{ if $stored }}{{ $stored.data.password }}{{ else }}{{ randAlphaNum 16 | b64enc }}{{ end }}}
{{- end }}
{{- if .Values.claim }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ include "name" . }}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: {{ .Values.claim }}}}}
{{- end }}
{{- with .Values.ingress }}
{{- $host := tpl (required "a host is required" .host) $ }}
{{- if $.Capabilities.APIVersions.Has "networking.k8s.io/v1/Ingress" }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ include "name" $ }}, annotations: {cert-manager.io/cluster-issuer: test}}
spec:
  rules:
  - host: {{ $host }}
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: {{ include "name" $ }}-{{ .to }}, port: {name: main}}}}
  tls: [{hosts: [{{ $host }}], secretName: {{ include "name" $ }}-tls}]
{{- end }}
{{- end }}
{{- if .Values.networkPolicy }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: {{ include "name" . }}}
spec:
  podSelector: {matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}}}
  policyTypes: [Ingress, Egress]
  egress: [{}]
  ingress:
  - from: [{podSelector: {matchLabels: {{ include "labels" . | fromYaml | toJson }}}}, {namespaceSelector: {}}]
    ports: [{port: main}, {port: 8000, endPort: 9000, protocol: TCP}]
{{- end }}
{{- with .Values.rules }}
{{- $role := $.Values.cluster | ternary "ClusterRole" "Role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}
metadata: {name: {{ include "name" $ }}}
rules: {{ toJson . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}Binding
metadata: {name: {{ include "name" $ }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $role }}, name: {{ include "name" $ }}}
subjects: [{kind: ServiceAccount, name: {{ include "name" $ }}, namespace: {{ $.Release.Namespace }}}]
{{- end }}
{{- with .Values.backup }}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: {{ include "name" $ }}-backup}
spec:
  schedule: {{ . | quote }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 1
      template: {{- include "pod" (dict "root" $ "name" "backup" "job" true) | nindent 8 }}
{{- end }}
{{- range .Values.objects }}
---
{{ tpl (toYaml .) $ }}
{{- end }}
""",
    "webhook.yaml": """
{{- with .Values.webhook }}
{{- $host := printf "%s-%s.%s.svc" (include "name" $) .to $.Release.Namespace }}
{{- $ca := genCA "test-ca" 365 }}
{{- $cert := genSignedCert $host nil (list $host) 365 $ca }}
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: {{ include "name" $ }}-webhook}
data: {tls.crt: {{ $cert.Cert | b64enc }}, tls.key: {{ $cert.Key | b64enc }}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ .kind }}
metadata: {name: {{ include "name" $ }}}
webhooks:
- name: webhook.{{ .group }}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 1
  rules: [{apiGroups: [{{ .group }}], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}]
  clientConfig:
    caBundle: {{ $ca.Cert | b64enc }}
    service: {name: {{ include "name" $ }}-{{ .to }}, namespace: {{ $.Release.Namespace }}, path: /validate, port: {{ .port }}}
{{- end }}
""",
    "hooks.yaml": """
{{- range $hook, $policy := .Values.hooks }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "name" $ }}-{{ $hook }}
  annotations: {helm.sh/hook: {{ $hook }}, helm.sh/hook-weight: "-5", helm.sh/hook-delete-policy: before-hook-creation}
data: {revision: {{ $.Release.Revision | quote }}, upgrade: {{ $.Release.IsUpgrade | quote }}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "name" $ }}-{{ $hook }}
  annotations: {helm.sh/hook: {{ $hook }}, helm.sh/hook-weight: "1", helm.sh/hook-delete-policy: {{ $policy | quote }}}
spec:
  template:
    metadata: {annotations: {pinnace.io/run-seconds: "0.1"}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: hook, envFrom: [{configMapRef: {name: {{ include "name" $ }}-{{ $hook }}}}]}]
{{- end }}
---
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "name" . }}-test
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation, pinnace.io/run-seconds: "0.1"}
spec: {restartPolicy: Never, containers: [{name: main, image: test, command: [nc, -z, {{ include "name" . }}, "80"]}]}
""",
    "NOTES.txt": "{{ .Chart.Name }} runs as {{ .Release.Name }}, revision {{ .Release.Revision }}.\n",
}


@dataclass(frozen=True)
class Chart:
    name: str
    workloads: Mapping[str, Mapping[str, Any]]
    """By name: the kind, and `port`, `storage`, `replicas`, `hpa`, `pdb`, `scratch`, `init` and so on of the templates."""
    values: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Custom kinds by group."""
    subcharts: Sequence["Chart"] = ()

    @property
    def crds(self) -> list[str]:
        return [f"{kind.lower()}s.{group}" for group, kinds in self.groups.items() for kind in kinds]


def workload(kind: str, port: int = 0, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "port": port} | fields


def rule(group: str, *resources: str, verbs: Sequence[str] = ("get", "list", "watch")) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def custom(group: str, kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "{{ .Release.Name }}-custom"}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": {"size": 1, **spec}}


STORE, DEPLOYMENT, DAEMONS = "StatefulSet", "Deployment", "DaemonSet"
KEPT, GONE = "before-hook-creation", "before-hook-creation,hook-succeeded"
MIGRATED = {"pre-install": KEPT, "pre-upgrade": KEPT, "post-upgrade": GONE}
GRAFANA = "{{ .Release.Name }}.example.com"
OPTIONS = {"retry": {"limit": 5}, "mode": "auto"}
INGRESS_CLASS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "IngressClass",
    "metadata": {"name": "{{ .Release.Namespace }}"},
    "spec": {"controller": "example.com/ingress"},
}
MARIADB = Chart("mariadb", {"primary": workload(STORE, 3306, storage="8Gi")}, {"password": True, "networkPolicy": True})
_CHARTS = (
    Chart(
        "postgresql",
        {
            "primary": workload(STORE, 5432, storage="8Gi", pdb={"maxUnavailable": 1}),
            "read": workload(STORE, 5432, storage="8Gi", replicas=2, policy="Parallel"),
        },
        {"password": True, "networkPolicy": True, "backup": "@daily", "hooks": MIGRATED},
    ),
    Chart(
        "redis",
        {
            "master": workload(STORE, 6379, storage="1Gi", init="sysctl -w net.core.somaxconn=10000"),
            "replicas": workload(STORE, 6379, storage="1Gi", replicas=3, pdb={"minAvailable": 2}),
        },
        {"password": True, "networkPolicy": True, "rules": [rule("", "pods", "configmaps")]},
    ),
    Chart(
        "nginx",
        {"web": workload(DEPLOYMENT, 8080, hpa={"min": 2, "max": 5}, pdb={"maxUnavailable": "50%"}, scratch="empty")},
        {"ingress": {"host": "nginx.example.com", "to": "web"}, "networkPolicy": True},
    ),
    Chart(
        "wordpress",
        {"site": workload(DEPLOYMENT, 8080, scratch="claim", service="LoadBalancer")},
        {"claim": "10Gi", "ingress": {"host": "blog.example.com", "to": "site"}, "hooks": {"post-install": GONE}},
        subcharts=[MARIADB],
    ),
    Chart(
        "kafka",
        {
            "controller": workload(STORE, 9093, storage="8Gi", replicas=3, policy="Parallel", pdb={"maxUnavailable": 1}),
            "broker": workload(STORE, 9092, storage="8Gi", replicas=3, policy="Parallel"),
        },
        {"password": True, "rules": [rule("", "services")], "hooks": {"post-install": KEPT, "post-upgrade": KEPT}},
    ),
    Chart(
        "prometheus",
        {
            "server": workload(STORE, 9090, storage="8Gi"),
            "alertmanager": workload(STORE, 9094, storage="2Gi"),
            "node-exporter": workload(DAEMONS, 9100),
            "state-metrics": workload(DEPLOYMENT, 8081),
        },
        {"cluster": True, "rules": [rule("", "nodes", "nodes/metrics", "services", "endpoints", "pods")]},
    ),
    Chart(
        "grafana",
        {"main": workload(DEPLOYMENT, 3000, scratch="claim", init="chown -R 472 /data", replicas=1)},
        {
            "claim": "10Gi",
            "password": True,
            "ingress": {"host": GRAFANA, "to": "main"},
            "config": {"GF_SERVER_ROOT_URL": f"https://{GRAFANA}/"},
        },
    ),
    Chart(
        "ingress-nginx",
        {"controller": workload(DEPLOYMENT, 8443, service="LoadBalancer", hpa={"min": 1, "max": 3})},
        {
            "cluster": True,
            "rules": [rule("networking.k8s.io", "ingresses", "ingressclasses")],
            "objects": [INGRESS_CLASS],
            "webhook": {"kind": "ValidatingWebhookConfiguration", "group": "ingress.test", "to": "controller", "port": 8443},
            "hooks": {"pre-install": GONE, "post-install": GONE, "pre-upgrade": GONE, "post-upgrade": GONE},
        },
    ),
    Chart(
        "cert-manager",
        {"controller": workload(DEPLOYMENT, 9402), "cainjector": workload(DEPLOYMENT), "webhook": workload(DEPLOYMENT, 10250)},
        {
            "cluster": True,
            "rules": [rule("certs.test", "*", verbs=["*"]), rule("", "secrets", verbs=["get", "create", "update"])],
            "objects": [custom("certs.test", "Issuer"), custom("certs.test", "Certificate", names=["a.example.com"])],
            "webhook": {"kind": "MutatingWebhookConfiguration", "group": "certs.test", "to": "webhook", "port": 10250},
            "hooks": {"post-install": GONE, "pre-delete": GONE},
        },
        {"certs.test": ["Issuer", "Certificate"]},
    ),
    Chart(
        "argo-cd",
        {
            "application-controller": workload(STORE, 8082),
            "server": workload(DEPLOYMENT, 8080, hpa={"min": 1, "max": 3}),
            "repo-server": workload(DEPLOYMENT, 8081, scratch="empty", init="cp /bin/tool /data"),
            "redis": workload(DEPLOYMENT, 6379),
        },
        {
            "password": True,
            "rules": [rule("argo.test", "*", verbs=["*"]), rule("", "secrets", "configmaps", "events", verbs=["*"])],
            "objects": [custom("argo.test", "Application", options=OPTIONS)],
            "networkPolicy": True,
            "hooks": {"pre-install": KEPT, "post-delete": GONE},
        },
        {"argo.test": ["Application", "AppProject"]},
    ),
)
CHARTS: Mapping[str, Chart] = {chart.name: chart for chart in _CHARTS}


def definition(group: str, kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def write_chart(chart: Chart, folder: Path) -> Path:
    """Write the chart into a new folder below `folder`, and return it."""
    root = folder / chart.name
    (root / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": chart.name, "version": "1.0.0", "appVersion": "1"}
    dependencies = [{"name": item.name, "version": "1.0.0", "condition": f"{item.name}.enabled"} for item in chart.subcharts]
    (root / "Chart.yaml").write_text(yaml.safe_dump(about | {"dependencies": dependencies}))
    values = {"global": {"tag": "1"}, "config": {"MODE": "{{ .Release.Name }}"}, "cluster": False, **chart.values}
    enabled = {item.name: {"enabled": True} for item in chart.subcharts}
    (root / "values.yaml").write_text(yaml.safe_dump(values | {"workloads": dict(chart.workloads)} | enabled))
    for name, text in TEMPLATES.items():
        (root / "templates" / name).write_text(text)
    if chart.groups:
        (root / "crds").mkdir()
        definitions = [definition(group, kind) for group, kinds in chart.groups.items() for kind in kinds]
        (root / "crds" / "all.yaml").write_text(yaml.safe_dump_all(definitions))
    for subchart in chart.subcharts:
        write_chart(subchart, root / "charts")
    return root
