{{/* What values.schema.json cannot see: values that do not fit together. Each says which, and what to do. */}}
{{- define "unskew.check" -}}
{{- include "unskew.check.name" . }}
{{- include "unskew.check.store" . }}
{{- include "unskew.check.callers" . }}
{{- include "unskew.check.metrics" . }}
{{- include "unskew.check.doors" . }}
{{- include "unskew.check.scaling" . }}
{{- end }}

{{/* helm takes releases such as 1st and my.release; a Service's name begins with a letter and has no dots. */}}
{{- define "unskew.check.name" -}}
{{- $name := include "unskew.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "fullnameOverride: the release %s would have a Service %s, and such a name begins with a letter, ends with a letter or digit, and has no dots; call the release otherwise, or set fullnameOverride" .Release.Name $name) }}
{{- end }}
{{- end }}

{{- define "unskew.check.store" -}}
{{- $redis := .Values.redis }}
{{- $given := list }}
{{- if $redis.url }}{{ $given = append $given "redis.url" }}{{ end }}
{{- if $redis.existingSecret }}{{ $given = append $given "redis.existingSecret" }}{{ end }}
{{- if $redis.trial.enabled }}{{ $given = append $given "redis.trial.enabled" }}{{ end }}
{{- if gt (len $given) 1 }}
{{- fail (printf "%s: give one of them; each says where the shared state is" (join ", " $given)) }}
{{- end }}
{{- $most := .Values.replicaCount | int }}
{{- if .Values.autoscaling.enabled }}{{ $most = .Values.autoscaling.maxReplicas | int }}{{ end }}
{{- if and (not $given) (gt $most 1) }}
{{- $name := ternary "autoscaling.maxReplicas" "replicaCount" .Values.autoscaling.enabled }}
{{- fail (printf "%s: %d replicas in memory would each know something else; set redis.url or redis.existingSecret (for a trial: redis.trial.enabled), or have 1 replica" $name $most) }}
{{- end }}
{{- end }}

{{- define "unskew.check.callers" -}}
{{- $auth := .Values.auth }}
{{- $credentials := or $auth.existingSecret $auth.clientCa.existingSecret }}
{{- if and $auth.insecure $credentials }}
{{- fail "auth.insecure: it lets everybody in, and credentials are given too; set it to false, or take away auth.existingSecret and auth.clientCa.existingSecret" }}
{{- end }}
{{- if and $auth.clientCa.existingSecret (not .Values.tls.existingSecret) }}
{{- fail "auth.clientCa.existingSecret: clients can show certificates over TLS only; set tls.existingSecret as well" }}
{{- end }}
{{- if and $auth.clientCa.existingSecret (not (or $auth.existingSecret $auth.generate)) }}
{{- fail "auth.clientCa.existingSecret: a certificate is somebody only by a line san=... in the list of callers; set auth.existingSecret, which has it, or leave auth.generate true" }}
{{- end }}
{{- if not (or $credentials $auth.generate $auth.insecure) }}
{{- fail "auth.generate: without credentials anybody who reaches the pods could change every stream; set auth.existingSecret, leave auth.generate true, or say auth.insecure: true if that is meant" }}
{{- end }}
{{- end }}

{{- define "unskew.check.metrics" -}}
{{- $monitor := .Values.metrics.serviceMonitor }}
{{- $auth := .Values.auth }}
{{- if $monitor.enabled }}
{{- if and $auth.clientCa.existingSecret (not $monitor.tlsConfig) }}
{{- fail "metrics.serviceMonitor.tlsConfig: with auth.clientCa Prometheus has to show a certificate; give ca, cert, keySecret and serverName there" }}
{{- end }}
{{- if and $auth.existingSecret (not $auth.clientCa.existingSecret) (not $monitor.bearerTokenSecret.name) }}
{{- fail "metrics.serviceMonitor.bearerTokenSecret.name: with auth.existingSecret Prometheus needs a token of role reader on *; name a Secret that has it" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "unskew.check.doors" -}}
{{- if .Values.tls.existingSecret }}
{{- range $door, $how := dict "ingress" "by an annotation of its own" "httpRoute" "by a BackendTLSPolicy" }}
{{- $value := get $.Values $door }}
{{- if and $value.enabled (not $value.backendTls) }}
{{- fail (printf "%s.backendTls: with tls.existingSecret the pods speak HTTPS only, and most controllers send HTTP unless they are told; tell yours, %s, and set %s.backendTls: true" $door $how $door) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "unskew.check.scaling" -}}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail (printf "autoscaling.minReplicas: %d, more than autoscaling.maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage)) }}
{{- fail "autoscaling.targetCPUUtilizationPercentage: it is 0, and so is autoscaling.targetMemoryUtilizationPercentage, and Kubernetes would then aim at a CPU of its own choice; give one of them, or set autoscaling.enabled: false and replicaCount" }}
{{- end }}
{{- end }}
{{- $anybody := or .Values.auth.insecure (and .Values.auth.clientCa.existingSecret .Values.auth.existingSecret) }}
{{- with .Values.keda }}
{{- if .enabled }}
{{- if not (or $anybody .tokenFromEnv) }}
{{- fail "keda.tokenFromEnv: the service asks for a token, and KEDA takes it from the target's environment; name the variable that has it there" }}
{{- end }}
{{- if not .stream }}{{ fail "keda.stream: name the stream whose advice sets the replicas" }}{{ end }}
{{- if not .scaleTargetRef.name }}{{ fail "keda.scaleTargetRef.name: name what is to be scaled, such as the Deployment of your executors" }}{{ end }}
{{- if gt (int .minReplicaCount) (int .maxReplicaCount) }}
{{- fail (printf "keda.minReplicaCount: %d, more than keda.maxReplicaCount, %d" (int .minReplicaCount) (int .maxReplicaCount)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
