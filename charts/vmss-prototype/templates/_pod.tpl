{{/* The job's spec, of Job and CronJob alike. */}}
{{- define "kamino.jobSpec" -}}
{{- $k := .Values.kamino -}}
backoffLimit: {{ $k.backoffLimit }}
ttlSecondsAfterFinished: {{ $k.jobTtl }}
podFailurePolicy:
  rules:
    # Refused, or another run holds the pool: trying again helps nobody.
    - action: FailJob
      onExitCodes:
        containerName: {{ $k.name }}
        operator: In
        values: [3]
    # The node of the pod was drained, say: the next pod finishes the run.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
template:
  metadata:
    labels:
      {{- include "kamino.labels" . | nindent 6 }}
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

{{- define "kamino.podSpec" -}}
{{- $k := .Values.kamino -}}
restartPolicy: Never
serviceAccountName: {{ include "kamino.serviceAccount" . }}
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
    imagePullPolicy: {{ if include "kamino.byHash" $k.container }}IfNotPresent{{ else }}Always{{ end }}
    command: [/kamino]
    args:
      {{- include "kamino.args" $k | nindent 6 }}
    env:
      - name: NODE_ID
        valueFrom:
          fieldRef:
            fieldPath: spec.nodeName
      - name: POD_NAMESPACE # former releases kept their leases there
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
      - name: POD_IMAGE
        value: {{ include "kamino.image" $k.container }}
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
    {{- if include "kamino.onHost" $k }}
    volumeMounts:
      - name: kubernetes
        mountPath: /etc/kubernetes
        readOnly: true
      {{- if $k.azure.caBundle }}
      - name: certificates
        mountPath: /etc/kamino/ca-certificates.crt
        readOnly: true
      {{- end }}
    {{- end }}
{{- if include "kamino.onHost" $k }}
volumes:
  - name: kubernetes
    hostPath:
      path: /etc/kubernetes
      type: Directory
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
{{- if or $k.targetNode $k.scheduleOnControlPlane }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        {{- include "kamino.terms" $k | nindent 8 }}
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
