{{/* The command that runs: update, auto-update or status. */}}
{{- define "kamino.command" -}}
{{- if .targetNode }}update{{ else if .targetVMSS }}auto-update{{ else }}status{{ end }}
{{- end }}

{{/* The scale set of a node: its name without the last six characters. */}}
{{- define "kamino.scaleSet" -}}
{{- .targetNode | lower | trunc (int (sub (len .targetNode) 6)) | trimSuffix "-" }}
{{- end }}

{{/* Whether it does more than look. */}}
{{- define "kamino.acts" -}}
{{- $command := include "kamino.command" . -}}
{{- if not (or (eq $command "status") (and (eq $command "auto-update") .auto.dryRun)) }}yes{{ end }}
{{- end }}

{{/* What the original called the job. */}}
{{- define "kamino.job" -}}
{{- $command := include "kamino.command" . -}}
{{- $what := "status" -}}
{{- if eq $command "update" }}{{ $what = include "kamino.scaleSet" . }}{{ else if eq $command "auto-update" }}{{ $what = "autoupdate" }}{{ end -}}
{{- printf "%s-%s" .name $what | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The object's name: a release's own, so that two for one pool stand side by side, and a Job's own for each
revision, since a Job cannot be changed. */}}
{{- define "kamino.jobName" -}}
{{- $suffix := .Release.Name | trunc 24 | trimSuffix "-" -}}
{{- if not .Values.kamino.auto.cronjob.enabled }}{{ $suffix = printf "%s-%d" $suffix (int .Release.Revision) }}{{ end -}}
{{- printf "%s-%s" (include "kamino.job" .Values.kamino | trunc (int (sub (ternary 51 62 .Values.kamino.auto.cronjob.enabled) (len $suffix))) | trimSuffix "-") $suffix }}
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
app.kubernetes.io/instance: {{ .Release.Name }}
helm/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.kamino.targetNode }}
targetNode: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "kamino.image" -}}
{{ .imageRegistry }}/{{ .imageRepository }}@sha256:{{ trimPrefix "sha256:" .imageHash }}
{{- end }}

{{- define "kamino.onHost" -}}
{{- if and .azure.inCluster (not .azure.workloadIdentity.enabled) (not .aws.enabled) }}yes{{ end }}
{{- end }}

{{- define "kamino.nonRoot" -}}
{{- $asked := .security.runAsNonRoot -}}
{{- if kindIs "bool" $asked }}{{ if $asked }}yes{{ end }}{{ else if not (include "kamino.onHost" .) }}yes{{ end }}
{{- end }}

{{/* What no schema can say. */}}
{{- define "kamino.check" -}}
{{- $k := .Values.kamino -}}
{{- if eq .Release.Namespace "kamino-system" }}{{ fail "install into another namespace, for instance kamino: kamino-system admits nothing but seal pods" }}{{ end -}}
{{- range $name := list "imageRegistry" "imageRepository" "imageHash" -}}
{{- if not (index $k.container $name) }}{{ fail (printf "kamino.container.%s is required: no image of kamino is released yet. Build one with \"make image\", push it to a registry of yours, and set kamino.container.imageRegistry, imageRepository and imageHash (its digest, 64 hexadecimal digits)" $name) }}{{ end -}}
{{- end -}}
{{- if hasSuffix "vmss-prototype" $k.container.imageRepository }}{{ fail (printf "kamino.container.imageRepository %q is the image of the Python script: name one of kamino, which \"make image\" builds" $k.container.imageRepository) }}{{ end -}}
{{- if $k.aws.enabled -}}
{{- range $name, $given := dict "azure.workloadIdentity.enabled" $k.azure.workloadIdentity.enabled "azure.subscription" $k.azure.subscription "azure.resourceGroup" $k.azure.resourceGroup "gallery" $k.gallery -}}
{{- if $given }}{{ fail (printf "kamino.%s is for clusters on Azure, and kamino.aws.enabled says that this one is on AWS: set only one of them" $name) }}{{ end -}}
{{- end -}}
{{- else -}}
{{- range $name := list "roleARN" "region" "clusterName" -}}
{{- if index $k.aws $name }}{{ fail (printf "kamino.aws.%s is for clusters on AWS: set kamino.aws.enabled=true, too" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $k.targetNode $k.targetVMSS }}{{ fail (printf "kamino.targetNode %q and kamino.targetVMSS %q exclude each other: set the first to update a pool from that node, or the second to let kamino choose the node" $k.targetNode $k.targetVMSS) }}{{ end -}}
{{- if and $k.targetNode $k.notify.secret }}{{ fail "kamino.notify.secret needs kamino.targetVMSS: an update from one node notifies nobody, and its Job says how it ended" }}{{ end -}}
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
{{- with .container.pullSecret }}
- --image-pull-secret
- {{ . | quote }}
{{- end }}
{{- if .aws.enabled }}
- --provider
- aws
{{- with .aws.region }}
- --region
- {{ . | quote }}
{{- end }}
{{- with .aws.clusterName }}
- --cluster-name
- {{ . | quote }}
{{- end }}
{{- end }}
{{- with .azure.subscription }}
- --subscription
- {{ . | quote }}
{{- end }}
{{- with .azure.resourceGroup }}
- --resource-group
- {{ . | quote }}
{{- end }}
{{- if eq (.hook | default "") "restore" }}
- restore
- --end-jobs-of
- {{ .release | quote }}
{{- include "kamino.gallery" . }}
{{- else if and .hook (include "kamino.acts" .) }}
- doctor
{{- if .targetNode }}
- --target-node
- {{ .targetNode | quote }}
{{- else }}
{{- include "kamino.pool" . }}
{{- include "kamino.selectArgs" .auto }}
{{- end }}
{{- include "kamino.runArgs" . }}
{{- else if eq $command "status" }}
- status
{{- include "kamino.gallery" . }}
{{- else if eq $command "update" }}
- update
- --target-node
- {{ .targetNode | quote }}
{{- include "kamino.runArgs" . }}
{{- include "kamino.jobArgs" . }}
{{- else }}
- --log-prefix
- auto-update
- auto-update
{{- include "kamino.pool" . }}
{{- include "kamino.runArgs" . }}
{{- include "kamino.notifyArgs" . }}
{{- include "kamino.jobArgs" . }}
{{- include "kamino.selectArgs" .auto }}
{{- include "kamino.autoArgs" .auto }}
{{- end }}
{{- end }}

{{- define "kamino.pool" }}
{{- if ne (upper .targetVMSS) "ALL" }}
- --target-vmss
- {{ .targetVMSS | quote }}
{{- end }}
{{- end }}

{{- define "kamino.gallery" }}
{{- with .gallery }}
- --gallery
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* How versions are proved: what the program does where nothing is set. */}}
{{- define "kamino.proves" -}}
{{ .prove.mode | default "canary" }}
{{- end }}

{{/* What doctor does not take. */}}
{{- define "kamino.jobArgs" }}
{{- range .extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* What doctor takes as well: how a run is made. */}}
{{- define "kamino.runArgs" }}
{{- include "kamino.gallery" . }}
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
{{- with .prove }}
{{- with .mode }}
- --prove
- {{ . }}
{{- end }}
{{- with .for }}
- --prove-for
- {{ . | quote }}
{{- end }}
{{- with .bootBudget }}
- --boot-budget
- {{ . | quote }}
{{- end }}
{{- with .promote }}
- --promote
- {{ . }}
{{- end }}
{{- range .without }}
- --prove-without
- {{ . }}
{{- end }}
{{- end }}
{{- if .allowSpot }}
- --allow-spot
{{- end }}
{{- range .keepExtensions }}
- --keep-extension
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* And which nodes may be donors. */}}
{{- define "kamino.selectArgs" }}
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
{{- end }}

{{- define "kamino.notifyArgs" }}
{{- if .notify.secret }}
- --notify-file
- /etc/kamino/notify/urls
{{- end }}
{{- end }}

{{- define "kamino.autoArgs" }}
- --max-unavailable-pools
- {{ .maxUnavailablePools | quote }}
- --max-not-ready
- {{ .maxNotReady | quote }}
{{- with .watch }}
- --watch
- {{ . | quote }}
{{- end }}
{{- if .patch }}
- --patch
{{- end }}
{{- if .dryRun }}
- --dry-run
{{- end }}
{{- end }}
