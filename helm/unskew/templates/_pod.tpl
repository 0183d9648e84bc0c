{{/* The service's environment: what the chart knows first, then `config`, then the user's own. */}}
{{- define "unskew.env" -}}
- {name: UNSKEW_HOST, value: {{ .Values.host | quote }}}
- {name: UNSKEW_HTTP_PORT, value: "8080"}
- {name: UNSKEW_GRPC_PORT, value: "8081"}
- {name: UNSKEW_METRICS_PORT, value: "8082"}
{{- if include "unskew.shared" . }}
- name: UNSKEW_STORE
  valueFrom:
    secretKeyRef:
      name: {{ include "unskew.redisSecret" . }}
      key: {{ ternary .Values.redis.existingSecretKey "url" (not (empty .Values.redis.existingSecret)) }}
{{- end }}
- {name: UNSKEW_DRAIN_DELAY, value: {{ include "unskew.drainDelay" . | quote }}}
- {name: UNSKEW_DRAIN, value: {{ .Values.drain.seconds | quote }}}
{{- if include "unskew.tokensSecret" . }}
- {name: UNSKEW_TOKENS_FILE, value: /etc/unskew/auth/tokens}
{{- end }}
{{- if .Values.auth.insecure }}
- {name: UNSKEW_INSECURE, value: "true"}
{{- end }}
{{- with .Values.tls }}
{{- if .existingSecret }}
- {name: UNSKEW_TLS_CERT, value: /etc/unskew/tls/{{ .certKey }}}
- {name: UNSKEW_TLS_KEY, value: /etc/unskew/tls/{{ .keyKey }}}
{{- end }}
{{- end }}
{{- with .Values.auth.clientCa }}
{{- if .existingSecret }}
- {name: UNSKEW_TLS_CLIENT_CA, value: /etc/unskew/client-ca/{{ .key }}}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.config }}
- {name: UNSKEW_{{ snakecase $name | upper }}, value: {{ include "unskew.setting" $value | quote }}}
{{- end }}
{{- with .Values.telemetry.otlpEndpoint }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
- {name: OTEL_SERVICE_NAME, value: {{ include "unskew.fullname" $ | quote }}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $.Release.Namespace }},k8s.pod.name=$(POD_NAME)
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Files of Secrets are not subPaths: so they follow their Secret. */}}
{{- define "unskew.volumes" -}}
{{- $mode := include "unskew.secretMode" . -}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- with include "unskew.tokensSecret" . }}
- name: auth
  secret: {secretName: {{ . }}, defaultMode: {{ $mode }}, items: [{key: tokens, path: tokens}]}
{{- end }}
{{- with .Values.tls }}
{{- if .existingSecret }}
- name: tls
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: {{ $mode }}
    items:
      - {key: {{ .certKey }}, path: {{ .certKey }}}
      - {key: {{ .keyKey }}, path: {{ .keyKey }}}
{{- end }}
{{- end }}
{{- with .Values.auth.clientCa }}
{{- if .existingSecret }}
- name: client-ca
  secret: {secretName: {{ .existingSecret }}, defaultMode: {{ $mode }}, items: [{key: {{ .key }}, path: {{ .key }}}]}
{{- end }}
{{- end }}
{{- with .Values.redis.tls.existingSecret }}
- name: redis-tls
  secret: {secretName: {{ . }}, defaultMode: {{ $mode }}}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "unskew.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "unskew.tokensSecret" . }}
- {name: auth, mountPath: /etc/unskew/auth, readOnly: true}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/unskew/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.clientCa.existingSecret }}
- {name: client-ca, mountPath: /etc/unskew/client-ca, readOnly: true}
{{- end }}
{{- if .Values.redis.tls.existingSecret }}
- {name: redis-tls, mountPath: /etc/unskew/redis, readOnly: true}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
