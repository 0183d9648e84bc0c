{{/* Names. The longest suffix of an object is ten characters; a Service's name may have 63. */}}
{{- define "unskew.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "unskew.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "unskew.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "unskew.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Labels of an object that is part of this component: (list $ "service"). */}}
{{- define "unskew.labels" -}}
{{- $root := first . -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "unskew.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: unskew
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{/* What selects its pods, and no other component's. */}}
{{- define "unskew.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ include "unskew.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* An image by tag, digest or both: (list .Values.image "default tag"). */}}
{{- define "unskew.image" -}}
{{- $image := first . -}}
{{ $image.repository }}:{{ default (last .) $image.tag }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Values that reach templates as floats, since YAML says so: whole ones without an exponent. */}}
{{- define "unskew.setting" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{/* "yes" or nothing, to be asked with `if`. */}}
{{- define "unskew.shared" -}}
{{- with .Values.redis }}{{ if or .url .existingSecret .trial.enabled }}yes{{ end }}{{ end }}
{{- end }}

{{- define "unskew.generated" -}}
{{- with .Values.auth }}{{ if and .generate (not .existingSecret) (not .insecure) }}yes{{ end }}{{ end }}
{{- end }}

{{/* The Secret with the tokens file; nothing where there is none. */}}
{{- define "unskew.tokensSecret" -}}
{{- if .Values.auth.existingSecret }}{{ .Values.auth.existingSecret }}
{{- else if include "unskew.generated" . }}{{ include "unskew.fullname" . }}-auth
{{- end }}
{{- end }}

{{- define "unskew.redisSecret" -}}
{{- default (printf "%s-redis" (include "unskew.fullname" .)) .Values.redis.existingSecret }}
{{- end }}

{{- define "unskew.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.existingSecret)) }}
{{- end }}

{{/* The host of the Service, or with a suffix of the one beside it: (list $ "-headless"). */}}
{{- define "unskew.host" -}}
{{- $root := first . -}}
{{ include "unskew.fullname" $root }}{{ last . }}.{{ $root.Release.Namespace }}.svc
{{- end }}

{{- define "unskew.drainDelay" -}}
{{- $probe := .Values.readinessProbe | default dict }}
{{- add (mul 2 ($probe.periodSeconds | default 10)) .Values.drain.extraDelaySeconds }}
{{- end }}

{{/* A probe, with our handler unless it has one: (list $ .Values.livenessProbe "/healthz"). */}}
{{- define "unskew.probe" -}}
{{- $root := index . 0 }}
{{- $probe := index . 1 | default dict }}
{{- if not (or $probe.httpGet $probe.tcpSocket $probe.grpc $probe.exec) }}
{{- $get := dict "path" (index . 2) "port" "http" "scheme" (include "unskew.scheme" $root | upper) }}
{{- $ours := ternary (dict "tcpSocket" (dict "port" "http")) (dict "httpGet" $get) (not (empty $root.Values.auth.clientCa.existingSecret)) }}
{{- $probe = merge $ours $probe }}
{{- end }}
{{- toYaml $probe }}
{{- end }}

{{/* Ports that lead to the Redis: those listed, and those in redis.url. */}}
{{- define "unskew.redisPorts" -}}
{{- $hosts := regexReplaceAll "^.*(@|//)|[/?].*$" (regexReplaceAll "^[^:]*://" .Values.redis.url "//") "" }}
{{- $ports := list }}
{{- range .Values.networkPolicy.egress.redisPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- range regexFindAll ":[0-9]+" $hosts -1 }}{{ $ports = append $ports (trimPrefix ":" . | int) }}{{ end }}
{{- toJson (uniq $ports) }}
{{- end }}

{{/* Who reads files of Secrets: the pod's group. Where values give it none (OpenShift gives it one itself) the image's user belongs to
no group of theirs, and then everybody does; there is nobody else in the container. */}}
{{- define "unskew.secretMode" -}}
{{- ternary "0440" "0444" (hasKey (.Values.podSecurityContext | default dict) "fsGroup") }}
{{- end }}

{{/* The port of a URL, or that of its scheme. */}}
{{- define "unskew.urlPort" -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- default (ternary "443" "80" (eq $url.scheme "https")) $port }}
{{- end }}

{{/* Whether the pod of `helm test` has what the service asks of callers. */}}
{{- define "unskew.testable" -}}
{{- $token := or .Values.tests.tokenSecret.name (include "unskew.generated" .) }}
{{- if .Values.auth.clientCa.existingSecret }}{{ if .Values.tests.clientCertSecret }}yes{{ end }}
{{- else if or $token .Values.auth.insecure }}yes
{{- end }}
{{- end }}
