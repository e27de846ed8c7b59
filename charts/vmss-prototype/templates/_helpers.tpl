{{/* The command that runs: update, auto-update or status. */}}
{{- define "kamino.command" -}}
{{- if .targetNode }}update{{ else if .targetVMSS }}auto-update{{ else }}status{{ end }}
{{- end }}

{{/* The scale set of a node: its name without the last six characters. */}}
{{- define "kamino.scaleSet" -}}
{{- .targetNode | lower | trunc (int (sub (len .targetNode) 6)) | trimSuffix "-" }}
{{- end }}

{{- define "kamino.job" -}}
{{- $command := include "kamino.command" . -}}
{{- $what := "status" -}}
{{- if eq $command "update" }}{{ $what = include "kamino.scaleSet" . }}{{ else if eq $command "auto-update" }}{{ $what = "autoupdate" }}{{ end -}}
{{- printf "%s-%s" .name $what | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Names of what belongs to the release, whatever its job is called. */}}
{{- define "kamino.fullname" -}}
{{- printf "%s-kamino" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "kamino.serviceAccount" -}}
{{- .Values.kamino.serviceAccount.name | default (include "kamino.fullname" .) }}
{{- end }}

{{- define "kamino.labels" -}}
app: {{ .Values.kamino.labels.app }}
kamino: {{ include "kamino.job" .Values.kamino }}
helm/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.kamino.targetNode }}
targetNode: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "kamino.byHash" -}}
{{- if and .pullByHash .imageHash }}yes{{ end }}
{{- end }}
{{- define "kamino.image" -}}
{{- if include "kamino.byHash" . -}}
{{ .imageRegistry }}/{{ .imageRepository }}@sha256:{{ trimPrefix "sha256:" .imageHash }}
{{- else -}}
{{ .imageRegistry }}/{{ .imageRepository }}:{{ .imageTag }}
{{- end }}
{{- end }}

{{- define "kamino.onHost" -}}
{{- if and .azure.inCluster (not .azure.workloadIdentity.enabled) }}yes{{ end }}
{{- end }}

{{- define "kamino.nonRoot" -}}
{{- $asked := .security.runAsNonRoot -}}
{{- if kindIs "bool" $asked }}{{ if $asked }}yes{{ end }}{{ else if not (include "kamino.onHost" .) }}yes{{ end }}
{{- end }}

{{/* What no schema can say. */}}
{{- define "kamino.check" -}}
{{- $k := .Values.kamino -}}
{{- if and $k.targetNode (le (len $k.targetNode) 6) }}{{ fail (printf "kamino.targetNode %q is no node of a scale set: those end in six characters that number the instance" $k.targetNode) }}{{ end -}}
{{- if eq (include "kamino.command" $k) "auto-update" -}}
{{- range $name := list "lastPatchAnnotation" "pendingRebootAnnotation" -}}
{{- if not (index $k.auto $name) }}{{ fail (printf "kamino.auto.%s is required with kamino.targetVMSS; kured's are weave.works/kured-most-recent-reboot-needed and weave.works/kured-reboot-in-progress" $name) }}{{ end -}}
{{- end -}}
{{- else if $k.auto.cronjob.enabled }}{{ fail "kamino.auto.cronjob.enabled needs kamino.targetVMSS: a scale set, or ALL" }}{{ end -}}
{{- end }}

{{/* The command line after the program's name. */}}
{{- define "kamino.args" -}}
{{- $command := include "kamino.command" . -}}
{{- if include "kamino.onHost" . }}
- --in-cluster
{{- end }}
- --log-level
- {{ .logLevel }}
{{- with .azure.subscription }}
- --subscription
- {{ . | quote }}
{{- end }}
{{- with .azure.resourceGroup }}
- --resource-group
- {{ . | quote }}
{{- end }}
{{- if eq $command "status" }}
- status
{{- else if eq $command "update" }}
- update
- --target-node
- {{ .targetNode | quote }}
{{- include "kamino.runArgs" . }}
{{- else }}
- --log-prefix
- auto-update
- auto-update
{{- if ne (upper .targetVMSS) "ALL" }}
- --target-vmss
- {{ .targetVMSS | quote }}
{{- end }}
{{- include "kamino.runArgs" . }}
{{- include "kamino.autoArgs" .auto }}
{{- end }}
{{- end }}

{{- define "kamino.runArgs" }}
- --new-updated-nodes
- {{ .newUpdatedNodes | quote }}
- --max-history
- {{ .imageHistory | quote }}
- --grace-period
- {{ .drain.gracePeriod | quote }}
{{- if .drain.timeout }}
- --drain-timeout
- {{ .drain.timeout | quote }}
{{- end }}
{{- if .drain.force }}
- --force
{{- end }}
{{- if ne .imageReference "version" }}
- --image-reference
- {{ .imageReference }}
{{- end }}
{{- if .allowSpot }}
- --allow-spot
{{- end }}
{{- end }}

{{- define "kamino.autoArgs" }}
- --last-patch-annotation
- {{ .lastPatchAnnotation | quote }}
- --pending-reboot-annotation
- {{ .pendingRebootAnnotation | quote }}
- --minimum-ready-time
- {{ .minimumReadyTime | quote }}
- --minimum-candidates
- {{ .minimumCandidates | quote }}
- --maximum-image-age
- {{ .maximumImageAge | quote }}
- --max-unavailable-pools
- {{ .maxUnavailablePools | quote }}
- --max-not-ready
- {{ .maxNotReady | quote }}
{{- range .ignoreNodes }}
- --ignore-nodes
- {{ . | quote }}
{{- end }}
{{- range .nodeIgnoreAnnotations }}
- --node-ignore-annotation
- {{ . | quote }}
{{- end }}
{{- range .ignoreConditions }}
- --ignore-condition
- {{ . | quote }}
{{- end }}
{{- if .rejectTainted }}
- --reject-tainted
{{- end }}
{{- if .dryRun }}
- --dry-run
{{- end }}
{{- end }}
