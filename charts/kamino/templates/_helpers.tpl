{{- define "controller.fullname" -}}
{{- if contains "kamino" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-kamino" (.Release.Name | trunc 43 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* No namespace and no release has a colon in its name, so no two releases share what has no namespace. */}}
{{- define "controller.wide" -}}
{{ .Release.Namespace }}:{{ include "controller.fullname" . }}
{{- end }}

{{- define "controller.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "controller.fullname" .) }}
{{- end }}

{{- define "controller.selector" -}}
app.kubernetes.io/name: kamino-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "controller.labels" -}}
{{ include "controller.selector" . }}
app.kubernetes.io/part-of: kamino
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "controller.image" -}}
{{ .Values.image.registry }}/{{ .Values.image.repository }}@sha256:{{ trimPrefix "sha256:" .Values.image.digest }}
{{- end }}

{{/* Whether files of the node are mounted. */}}
{{- define "controller.onHost" -}}
{{- if and .Values.azure.inCluster (not .Values.azure.workloadIdentity.enabled) (not .Values.aws.enabled) }}yes{{ end }}
{{- end }}

{{- define "controller.nonRoot" -}}
{{- $asked := .Values.security.runAsNonRoot -}}
{{- if kindIs "bool" $asked }}{{ if $asked }}yes{{ end }}{{ else if not (include "controller.onHost" .) }}yes{{ end }}
{{- end }}

{{/* What no schema can say. */}}
{{- define "controller.check" -}}
{{- if eq .Release.Namespace "kamino-system" }}{{ fail "install into another namespace, for instance kamino: kamino-system admits nothing but seal pods" }}{{ end -}}
{{- range $name := list "registry" "repository" "digest" -}}
{{- if not (index $.Values.image $name) }}{{ fail (printf "image.%s is required: no image of kamino is released yet. Build one with \"make image\", push it to a registry of yours, and set image.registry, image.repository and image.digest (64 hexadecimal digits)" $name) }}{{ end -}}
{{- end -}}
{{- $seals := .Values.sealImage | default (include "controller.image" .) -}}
{{- if and .Values.base.enabled (not (has $seals (index .Values "kamino-base" "sealImages"))) }}{{ fail (printf "kamino-base.sealImages does not name %s, so no disk could be sealed: add it, or set base.enabled=false where the cluster was prepared otherwise" $seals) }}{{ end -}}
{{- if .Values.aws.enabled -}}
{{- range $name, $given := dict "workloadIdentity.enabled" .Values.azure.workloadIdentity.enabled "subscription" .Values.azure.subscription "resourceGroup" .Values.azure.resourceGroup "gallery" .Values.azure.gallery -}}
{{- if $given }}{{ fail (printf "azure.%s is for clusters on Azure, and aws.enabled says that this one is on AWS: set only one of them" $name) }}{{ end -}}
{{- end -}}
{{- else -}}
{{- range $name := list "roleARN" "region" "clusterName" -}}
{{- if index $.Values.aws $name }}{{ fail (printf "aws.%s is for clusters on AWS: set aws.enabled=true, too" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Which cloud, for each command. */}}
{{- define "controller.cloud" -}}
- --log-level
- {{ .Values.controller.logLevel }}
{{- if .Values.aws.enabled }}
- --provider
- aws
{{- with .Values.aws.region }}
- --region
- {{ . | quote }}
{{- end }}
{{- with .Values.aws.clusterName }}
- --cluster-name
- {{ . | quote }}
{{- end }}
{{- end }}
{{- if include "controller.onHost" . }}
- --in-cluster
{{- end }}
{{- with .Values.azure.subscription }}
- --subscription
- {{ . | quote }}
{{- end }}
{{- with .Values.azure.resourceGroup }}
- --resource-group
- {{ . | quote }}
{{- end }}
{{- with .Values.image.pullSecret }}
- --image-pull-secret
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "controller.podLabels" -}}
{{ include "controller.labels" . }}
{{- if .Values.azure.workloadIdentity.enabled }}
azure.workload.identity/use: "true"
{{- end }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What all pods of the release have in common. */}}
{{- define "controller.pod" -}}
serviceAccountName: {{ include "controller.serviceAccount" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
enableServiceLinks: false
{{- with .Values.image.pullSecret }}
imagePullSecrets:
  - name: {{ . }}
{{- end }}
securityContext:
  {{- if include "controller.nonRoot" . }}
  runAsNonRoot: true
  runAsUser: {{ .Values.security.user }}
  runAsGroup: {{ .Values.security.group }}
  {{- else }}
  runAsUser: 0
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
tolerations:
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or (include "controller.onHost" .) .Values.notify.secret }}
volumes:
  {{- with .Values.notify.secret }}
  - name: notify
    secret:
      secretName: {{ . }}
      optional: true # the jobs of Helm need it not
  {{- end }}
{{- end }}
{{- if include "controller.onHost" . }}
  {{- range $i, $path := .Values.azure.hostFiles }}
  - name: file-{{ $i }}
    hostPath:
      path: {{ $path }}
      type: File
  {{- end }}
  {{- with .Values.azure.caBundle }}
  - name: certificates
    hostPath:
      path: {{ . }}
      type: File
  {{- end }}
{{- end }}
{{- end }}

{{/* What all containers of the release have in common. */}}
{{- define "controller.container" -}}
image: {{ include "controller.image" . }}
imagePullPolicy: IfNotPresent
command: [/kamino]
env:
  - name: NODE_ID
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: POD_IMAGE
    value: {{ .Values.sealImage | default (include "controller.image" .) }}
  {{- with .Values.controller.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.controller.sealPolicy }}
  - name: SEAL_POLICY
    value: {{ . | quote }}
  {{- end }}
  {{- if and (include "controller.onHost" .) .Values.azure.caBundle }}
  - name: SSL_CERT_FILE
    value: /etc/kamino/ca-certificates.crt
  {{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- if or (include "controller.onHost" .) .Values.notify.secret }}
volumeMounts:
  {{- if .Values.notify.secret }}
  - name: notify
    mountPath: /etc/kamino/notify
    readOnly: true
  {{- end }}
{{- end }}
{{- if include "controller.onHost" . }}
  {{- range $i, $path := .Values.azure.hostFiles }}
  - name: file-{{ $i }}
    mountPath: {{ $path }}
    readOnly: true
  {{- end }}
  {{- if .Values.azure.caBundle }}
  - name: certificates
    mountPath: /etc/kamino/ca-certificates.crt
    readOnly: true
  {{- end }}
{{- end }}
{{- end }}

{{/* A Job of Helm's that runs one command with the rights of the controller. */}}
{{- define "controller.hook" -}}
{{- with .root -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "controller.fullname" . }}-{{ $.name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "controller.labels" . | nindent 4 }}
    app.kubernetes.io/component: {{ $.name }}
  annotations:
    helm.sh/hook: {{ $.hook }}
    helm.sh/hook-delete-policy: before-hook-creation{{ if ne $.hook "test" }},hook-succeeded{{ end }}
spec:
  {{- if eq $.hook "test" }}
  backoffLimit: 0
  ttlSecondsAfterFinished: 259200 # helm uninstall does not delete it
  {{- else }}
  backoffLimit: 3
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "controller.podLabels" . | nindent 8 }}
        app.kubernetes.io/component: {{ $.name }}
      {{- with .Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "controller.pod" . | nindent 6 }}
      restartPolicy: Never
      containers:
        - name: {{ $.name }}
          {{- include "controller.container" . | nindent 10 }}
          args:
            {{- include "controller.cloud" . | nindent 12 }}
            {{- range $.command }}
            - {{ . | quote }}
            {{- end }}
            {{- with .Values.azure.gallery }}
            - --gallery
            - {{ . | quote }}
            {{- end }}
{{- end }}
{{- end }}
