{{/* The job's spec, of Job and CronJob alike. */}}
{{- define "kamino.jobSpec" -}}
{{- $k := .Values.kamino -}}
backoffLimit: {{ $k.backoffLimit }}
{{- with $k.activeDeadline }}
activeDeadlineSeconds: {{ . }}
{{- end }}
{{- if not $k.auto.cronjob.enabled }}
ttlSecondsAfterFinished: {{ $k.jobTtl }}
{{- end }}
podFailurePolicy:
  rules:
    # Refused, or another run holds the pool, or the image is bad: trying again helps nobody.
    - action: FailJob
      onExitCodes:
        containerName: {{ $k.name }}
        operator: In
        values: [3, 4]
    # The node of the pod was drained, say: the next pod finishes the run.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
template:
  metadata:
    labels:
      {{- include "kamino.labels" . | nindent 6 }}
      app.kubernetes.io/component: run
      {{- if $k.azure.workloadIdentity.enabled }}
      azure.workload.identity/use: "true"
      {{- end }}
      {{- with $k.podLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    annotations:
      cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
      {{- with $k.podAnnotations }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  spec:
    {{- include "kamino.podSpec" . | nindent 4 }}
{{- end }}

{{/* A Job of Helm's with the account of the release; its name says what it runs. */}}
{{- define "kamino.hook" -}}
{{- with .root -}}
{{- $k := merge (dict "hook" $.name "release" .Release.Name "targetVMSS" .Values.kamino.targetVMSS) .Values.kamino -}}
{{- $root := dict "Values" (dict "kamino" $k) "Release" .Release "Chart" .Chart "Template" .Template "Capabilities" .Capabilities -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "kamino.fullname" . | trunc 54 | trimSuffix "-" }}-{{ $.name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "kamino.labels" . | nindent 4 }}
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
        {{- include "kamino.labels" . | nindent 8 }}
        app.kubernetes.io/component: {{ $.name }}
        {{- if $k.azure.workloadIdentity.enabled }}
        azure.workload.identity/use: "true"
        {{- end }}
        {{- with $k.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $k.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "kamino.podSpec" $root | nindent 6 }}
{{- end }}
{{- end }}

{{- define "kamino.podSpec" -}}
{{- $k := .Values.kamino -}}
restartPolicy: Never
serviceAccountName: {{ include "kamino.serviceAccount" . }}
{{- with $k.priorityClass }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ $k.terminationGracePeriod }}
enableServiceLinks: false
{{- with $k.container.pullSecret }}
imagePullSecrets:
  - name: {{ . }}
{{- end }}
securityContext:
  {{- if include "kamino.nonRoot" $k }}
  runAsNonRoot: true
  runAsUser: {{ $k.security.user }}
  runAsGroup: {{ $k.security.group }}
  {{- else }}
  runAsUser: 0
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ $k.name }}
    image: {{ include "kamino.image" $k.container }}
    imagePullPolicy: IfNotPresent
    command: [/kamino]
    args:
      {{- include "kamino.args" $k | nindent 6 }}
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
        value: {{ $k.container.sealImage | default (include "kamino.image" $k.container) }}
      {{- with $k.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $k.sealPolicy }}
      - name: SEAL_POLICY
        value: {{ . | quote }}
      {{- end }}
      {{- with $k.prove.probe }}
      - name: PROBE
        value: {{ . | quote }}
      {{- end }}
      {{- if and (include "kamino.onHost" $k) $k.azure.caBundle }}
      - name: SSL_CERT_FILE
        value: /etc/kamino/ca-certificates.crt
      {{- end }}
    {{- with $k.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    {{- if or (include "kamino.onHost" $k) $k.notify.secret }}
    volumeMounts:
      {{- if $k.notify.secret }}
      - name: notify
        mountPath: /etc/kamino/notify
        readOnly: true
      {{- end }}
    {{- end }}
    {{- if include "kamino.onHost" $k }}
      {{- range $i, $path := $k.azure.hostFiles }}
      - name: file-{{ $i }}
        mountPath: {{ $path }}
        readOnly: true
      {{- end }}
      {{- if $k.azure.caBundle }}
      - name: certificates
        mountPath: /etc/kamino/ca-certificates.crt
        readOnly: true
      {{- end }}
    {{- end }}
{{- if or (include "kamino.onHost" $k) $k.notify.secret }}
volumes:
  {{- with $k.notify.secret }}
  - name: notify
    secret:
      secretName: {{ . }}
      optional: true # the job that ends a release needs it not
  {{- end }}
{{- end }}
{{- if include "kamino.onHost" $k }}
  {{- range $i, $path := $k.azure.hostFiles }}
  - name: file-{{ $i }}
    hostPath:
      path: {{ $path }}
      type: File
  {{- end }}
  {{- with $k.azure.caBundle }}
  - name: certificates
    hostPath:
      path: {{ . }}
      type: File
  {{- end }}
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $k.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
tolerations:
  # Today's taint of the control plane, and that of clusters of old.
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  - key: node-role.kubernetes.io/master
    operator: Exists
    effect: NoSchedule
  {{- with $k.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or $k.targetNode $k.scheduleOnControlPlane $k.affinity }}
affinity:
  {{- with omit $k.affinity "nodeAffinity" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if or $k.targetNode $k.scheduleOnControlPlane $k.affinity.nodeAffinity }}
  nodeAffinity:
    {{- with $k.affinity.nodeAffinity }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if or $k.targetNode $k.scheduleOnControlPlane }}
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        {{- include "kamino.terms" $k | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* One term is enough; each keeps off the node that will be switched off. */}}
{{- define "kamino.terms" -}}
{{- if .scheduleOnControlPlane -}}
- matchExpressions:
    - key: node-role.kubernetes.io/control-plane
      operator: Exists
  {{- include "kamino.notTarget" . | nindent 2 }}
- matchExpressions:
    - key: node-role.kubernetes.io/master
      operator: Exists
  {{- include "kamino.notTarget" . | nindent 2 }}
- matchExpressions:
    - key: kubernetes.io/role
      operator: In
      values: [master]
  {{- include "kamino.notTarget" . | nindent 2 }}
{{- else -}}
- {{ include "kamino.notTarget" . | nindent 2 | trim }}
{{- end }}
{{- end }}

{{- define "kamino.notTarget" -}}
{{- with .targetNode -}}
matchFields:
  - key: metadata.name
    operator: NotIn
    values:
      - {{ . | quote }}
{{- end }}
{{- end }}
