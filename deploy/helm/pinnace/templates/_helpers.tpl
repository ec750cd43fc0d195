{{- define "pinnace.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The name of an object of a component. Arguments: the root, the component. */}}
{{- define "pinnace.name" -}}
{{ include "pinnace.fullname" (index . 0) }}-{{ index . 1 }}
{{- end }}

{{/* The DNS name of a service. Arguments: the root, the component. */}}
{{- define "pinnace.host" -}}
{{- $root := index . 0 -}}
{{ include "pinnace.name" . }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end }}

{{- define "pinnace.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "pinnace.labels" -}}
{{ include "pinnace.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "pinnace.metadata" -}}
name: {{ include "pinnace.name" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "pinnace.labels" . | nindent 2 }}
{{- end }}

{{/* The image of a component, by its imageTag. Arguments: the root, the tag. */}}
{{- define "pinnace.image" -}}
{{- $image := (index . 0).Values.image -}}
{{ $image.repository }}:{{ index . 1 | default $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}

{{/* What all pods of a component have. Arguments: the root, the component, its values, whenUnsatisfiable by node. */}}
{{- define "pinnace.pod" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}{{ $values := index . 2 -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $values $field }}
{{ $field }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
topologySpreadConstraints:
  {{- range $key, $when := dict "kubernetes.io/hostname" (index . 3) "topology.kubernetes.io/zone" "ScheduleAnyway" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: {{ $when }}
    labelSelector:
      matchLabels:
        {{- include "pinnace.selector" (list $root $component) | nindent 8 }}
  {{- end }}
{{- end }}

{{/* The variables of the downward API that arguments use. */}}
{{- define "pinnace.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{- define "pinnace.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 120
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* A Deployment of our image. Arguments as a map: root, component, values, args, ports (name: number). */}}
{{- define "pinnace.deployment" -}}
{{- $of := list .root .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "pinnace.metadata" $of | nindent 2 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      {{- include "pinnace.selector" $of | nindent 6 }}
  template:
    {{- include "pinnace.template" . | nindent 4 }}
{{- end }}

{{/* The pod template of our image; arguments as for pinnace.deployment, and `secret`, the name of the certificates. */}}
{{- define "pinnace.template" -}}
{{- $of := list .root .component -}}
metadata:
  labels:
    {{- include "pinnace.labels" $of | nindent 4 }}
  {{- with .values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "pinnace.pod" (list .root .component .values "ScheduleAnyway") | nindent 2 }}
  containers:
    - name: {{ .program | default .component }}
      image: {{ include "pinnace.image" (list .root .values.imageTag) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [pinnace-{{ .program | default .component }}]
      args:
        - --name=$(POD_NAME)
        - --http=$(POD_IP):7480
        {{- range concat .args .values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        {{- include "pinnace.env" . | nindent 8 }}
      ports:
        - {name: http, containerPort: 7480}
        {{- range $name, $port := .ports }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      {{- include "pinnace.probes" . | nindent 6 }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        {{- toYaml .root.Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: pki, mountPath: /pki, readOnly: true}
        {{- with .config }}
        - {name: config, mountPath: /etc/pinnace, readOnly: true}
        {{- end }}
  volumes:
    - name: pki
      secret:
        secretName: {{ include "pinnace.name" $of }}-pki
        defaultMode: 0440
    {{- with .config }}
    - name: config
      configMap: {name: {{ . }}}
    {{- end }}
{{- end }}

{{/* A budget of a component with several replicas. Arguments: the root, the component, its replicas. */}}
{{- define "pinnace.budget" -}}
{{- if and (index . 0).Values.podDisruptionBudget.enabled (gt (index . 2 | int) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "pinnace.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "pinnace.selector" . | nindent 6 }}
{{- end }}
{{- end }}
