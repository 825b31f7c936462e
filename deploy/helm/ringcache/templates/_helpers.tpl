{{- define "ringcache.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "ringcache.directory" -}}
{{ include "ringcache.name" . }}-directory
{{- end -}}

{{- define "ringcache.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What a selector goes by: it must never change. */}}
{{- define "ringcache.selector" -}}
app.kubernetes.io/name: ringcache
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: daemon
{{- end -}}

{{- define "ringcache.directorySelector" -}}
app.kubernetes.io/name: ringcache
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: directory
{{- end -}}

{{/* Labels of the chart, beside those of a selector. */}}
{{- define "ringcache.chart" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Of a container: the program needs no privileges. */}}
{{- define "ringcache.restricted" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What a schema can't say. */}}
{{- define "ringcache.check" -}}
{{- if and .Values.http.tlsSecret.clientCA (not .Values.http.tlsSecret.name) -}}
{{- fail "http.tlsSecret: clientCA needs TLS; name a secret of the type kubernetes.io/tls by http.tlsSecret.name" -}}
{{- end -}}
{{- if and .Values.http.expose .Values.lmcache.enabled (not .Values.http.keySecret.name) (not .Values.http.tlsSecret.clientCA) -}}
{{- fail "http.expose with lmcache: other pods could clear the cache by HTTP; name a secret with a key by http.keySecret, or set http.tlsSecret.clientCA" -}}
{{- end -}}
{{- if and .Values.http.podMonitor.enabled (not .Values.http.expose) -}}
{{- fail "http.podMonitor: Prometheus does not get to HTTP unless http.expose is set" -}}
{{- end -}}
{{- end -}}

{{/* The flags of the daemon, a line each. */}}
{{- define "ringcache.args" -}}
{{- $size := trimSuffix "GiB" .Values.size | int -}}
- serve
- --size={{ $size }}GiB
{{- with .Values.disk.size }}
- --disk=/var/cache/ringcache
- --disk-size={{ . }}
{{- end }}
{{- if ne (.Values.drainSeconds | int) 30 }}
- --drain={{ .Values.drainSeconds | int }}s
{{- end }}
{{- if .Values.lmcache.enabled }}
- --lmcache=grpc+unix:///run/ringcache/kv.sock
{{- end }}
{{- if .Values.lm.enabled }}
- --lm=0.0.0.0:{{ .Values.lm.port | int }}
{{- end }}
{{- if .Values.resp.enabled }}
- --resp=0.0.0.0:{{ .Values.resp.port | int }}
{{- if .Values.resp.passwordSecret.name }}
- --resp-password-file=/etc/ringcache/resp/password
{{- end }}
{{- end }}
{{- if or .Values.lm.enabled .Values.resp.enabled }}
- --values-any
{{- end }}
{{- with .Values.redis }}
{{- if .url }}
- {{ printf "--redis=%s" .url | quote }}
{{- if .user }}
- {{ printf "--redis-user=%s" .user | quote }}
{{- end }}
{{- if .passwordSecret.name }}
- --redis-password-file=/etc/ringcache/redis/password
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.http.expose }}
- --http=0.0.0.0:{{ .Values.http.port | int }}
- --http-any
{{- if .Values.http.keySecret.name }}
- --http-key-file=/etc/ringcache/http/key
{{- end }}
{{- if .Values.http.tlsSecret.name }}
- --http-cert=/etc/ringcache/tls/tls.crt
- --http-cert-key=/etc/ringcache/tls/tls.key
{{- if .Values.http.tlsSecret.clientCA }}
- --http-client-ca=/etc/ringcache/tls/ca.crt
{{- end }}
{{- end }}
{{- else if ne (.Values.http.port | int) 9401 }}
- --http=127.0.0.1:{{ .Values.http.port | int }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "slice" $value }}
- {{ printf "--%s=%s" $name (join "," $value) | quote }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%d" $name (int64 $value) | quote }}
{{- else }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Memory: the segment with its tables, and the daemon's own, which with LMCache has large messages. */}}
{{- define "ringcache.resources" -}}
{{- $size := trimSuffix "GiB" .Values.size | int -}}
{{- $own := ternary 4 2 .Values.lmcache.enabled -}}
{{- $requests := merge (dict) (.Values.resources.requests | default dict) (dict "memory" (printf "%dGi" (add $size 1))) -}}
{{- $limits := merge (dict) (.Values.resources.limits | default dict) (dict "memory" (printf "%dGi" (add $size $own))) -}}
{{- toYaml (dict "requests" $requests "limits" $limits) -}}
{{- end -}}
