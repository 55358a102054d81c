{{/* What the program is told: the file with settings, variables, and files with secrets. */}}

{{/* A number as the program reads it: 1000000 and not 1e+06. */}}
{{- define "rondo.scalar" -}}
{{- if kindIs "float64" . -}}
{{- if eq . (floor .) -}}{{- printf "%d" (int64 .) -}}{{- else -}}{{- printf "%v" . -}}{{- end -}}
{{- else -}}{{- toString . -}}{{- end -}}
{{- end -}}

{{/* A setting as a variable has it: lists and maps with commas. */}}
{{- define "rondo.flat" -}}
{{- if kindIs "slice" . -}}{{- join "," . -}}
{{- else if kindIs "map" . -}}
{{- $parts := list -}}{{- range $k, $v := . -}}{{- $parts = append $parts (printf "%s=%s" $k (include "rondo.scalar" $v)) -}}{{- end -}}{{- join "," $parts -}}
{{- else -}}{{- include "rondo.scalar" . -}}{{- end -}}
{{- end -}}

{{/* How many seconds a duration has, rounded up: 90s, 1h30m, 30d. */}}
{{- define "rondo.seconds" -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h|d)" (toString .) -1 -}}
{{- $unit := regexReplaceAll "^[0-9.]+" . "" -}}
{{- $total = addf $total (mulf (regexFind "^[0-9.]+" . | float64) (get (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400) $unit)) -}}
{{- end -}}
{{- ceil $total | int64 -}}
{{- end -}}

{{/* The file with settings that all services share. What is under "settings" cannot say what has a value of its own. */}}
{{- define "rondo.settings" -}}
{{- $all := dict "nats" .Values.nats.urls "prefix" .Values.streams.prefix "replicas" .Values.streams.replicas "partitions" .Values.streams.partitions -}}
{{- if .Values.nats.tls.first -}}{{- $_ := set $all "nats-tls-first" true -}}{{- end -}}
{{- range $k, $v := .Values.settings -}}{{- if not (kindIs "invalid" $v) -}}{{- $_ := set $all $k $v -}}{{- end -}}{{- end -}}
{{- range $k, $v := $all }}
{{- if or (kindIs "slice" $v) (kindIs "map" $v) }}
{{ $k }}: {{ include "rondo.flat" $v | quote }}
{{- else }}
{{ $k }}: {{ include "rondo.scalar" $v | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A setting of a component: its own, or the shared one, or what the program does when nobody says anything. Takes root, c, name, default. */}}
{{- define "rondo.setting" -}}
{{- $own := get (default (dict) .c.w.settings) .name -}}
{{- $shared := get .root.Values.settings .name -}}
{{- include "rondo.scalar" (default .default (default $shared $own)) -}}
{{- end -}}

{{/* How many seconds a component may take for its end. */}}
{{- define "rondo.drain" -}}
{{- $s := include "rondo.setting" (dict "root" .root "c" .c "name" "shutdown-timeout" "default" "20s") | include "rondo.seconds" | int64 -}}
{{- if eq .c.component "worker" -}}
{{- $s = add $s (include "rondo.setting" (dict "root" .root "c" .c "name" "cancel-grace" "default" "10s") | include "rondo.seconds" | int64) -}}
{{- end -}}
{{- $s -}}
{{- end -}}

{{/* After how many seconds a Pod is killed: what was said, or the drain with room for giving work back and for what telemetry has to send. */}}
{{- define "rondo.period" -}}
{{- $drain := include "rondo.drain" . | int64 -}}
{{- with .c.w.terminationGracePeriodSeconds -}}{{- int64 . -}}
{{- else -}}{{- add $drain (eq .c.component "worker" | ternary 15 10) -}}{{- end -}}
{{- end -}}

{{/* How a component logs in to NATS: the common way, or its own whole one. */}}
{{- define "rondo.auth" -}}
{{- $own := default (dict) (get (default (dict) .c.w.nats) "auth") -}}
{{- $a := deepCopy .root.Values.nats.auth -}}
{{- if $own -}}
{{- $a = mergeOverwrite (dict "method" "" "existingSecret" "" "keys" $a.keys "user" "" "password" "" "token" "" "inboxPrefix" "") (deepCopy $own) -}}
{{- end -}}
{{- if not .c.nats -}}{{- $a = dict "method" "" "existingSecret" "" "keys" $a.keys "user" "" "password" "" "token" "" "inboxPrefix" "" -}}{{- end -}}
{{- if not $a.method -}}
{{- if $a.token -}}{{- $_ := set $a "method" "token" -}}{{- else if $a.user -}}{{- $_ := set $a "method" "userPassword" -}}{{- end -}}
{{- end -}}
{{- toJson $a -}}
{{- end -}}

{{/* The certificates for NATS: the common ones, with what the component has of its own over them. */}}
{{- define "rondo.natsTLS" -}}
{{- $none := dict "existingSecret" "" "existingConfigMap" "" -}}
{{- $tls := mergeOverwrite (deepCopy .root.Values.nats.tls) (deepCopy (default (dict) (get (default (dict) .c.w.nats) "tls"))) -}}
{{- .c.nats | ternary $tls (dict "ca" $none "client" $none) | toJson -}}
{{- end -}}

{{/* The database of a component. Whoever says another address or Secret says nothing of the first one. */}}
{{- define "rondo.database" -}}
{{- $d := deepCopy .root.Values.database -}}
{{- $own := default (dict) .c.w.database -}}
{{- if or $own.url $own.existingSecret -}}
{{- $d = mergeOverwrite $d (dict "url" "" "existingSecret" "" "password" (dict "existingSecret" "" "key" $d.password.key)) -}}
{{- end -}}
{{- mergeOverwrite $d (deepCopy $own) | toJson -}}
{{- end -}}

{{/* What stands in the values and is a secret, by the keys of the component's own Secret, as JSON. */}}
{{- define "rondo.inline" -}}
{{- $out := dict -}}
{{- $a := include "rondo.auth" . | fromJson -}}
{{- if not $a.existingSecret -}}
{{- if eq $a.method "token" -}}{{- $_ := set $out "token" $a.token -}}{{- end -}}
{{- if eq $a.method "userPassword" -}}{{- $_ := set $out "user" $a.user -}}{{- $_ := set $out "password" $a.password -}}{{- end -}}
{{- end -}}
{{- if .c.database -}}
{{- $d := include "rondo.database" . | fromJson -}}
{{- if and $d.url (not $d.existingSecret) -}}{{- $_ := set $out "url" $d.url -}}{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Whether what stands in the values is secret. The address of a database without a password is not. */}}
{{- define "rondo.inlineSecret" -}}
{{- $inline := include "rondo.inline" . | fromJson -}}
{{- if and $inline.url (not (regexMatch "://[^/@]*:[^/@]+@|[?&](ssl)?password=" $inline.url)) -}}{{- $inline = omit $inline "url" -}}{{- end -}}
{{- if $inline -}}true{{- end -}}
{{- end -}}

{{/* Volumes with secrets and certificates, as a JSON list of: name, path, secret or configMap, items (key to file). */}}
{{- define "rondo.files" -}}
{{- $out := list -}}
{{- $a := include "rondo.auth" . | fromJson -}}
{{- $secret := default .c.secret $a.existingSecret -}}
{{- $keys := ne $a.existingSecret "" | ternary $a.keys (dict "user" "user" "password" "password" "token" "token") -}}
{{- if eq $a.method "credentials" -}}{{- $out = append $out (dict "name" "nats-auth" "path" "/etc/rondo/nats/auth" "secret" $secret "items" (dict $a.keys.credentials "nats.creds")) -}}
{{- else if eq $a.method "nkey" -}}{{- $out = append $out (dict "name" "nats-auth" "path" "/etc/rondo/nats/auth" "secret" $secret "items" (dict $a.keys.nkey "nats.nk")) -}}
{{- else if eq $a.method "userPassword" -}}{{- $out = append $out (dict "name" "nats-auth" "path" "/etc/rondo/nats/auth" "secret" $secret "items" (dict $keys.password "password")) -}}
{{- else if eq $a.method "token" -}}{{- $out = append $out (dict "name" "nats-auth" "path" "/etc/rondo/nats/auth" "secret" $secret "items" (dict $keys.token "token")) -}}
{{- end -}}
{{- $tls := list (dict "name" "nats" "tls" (include "rondo.natsTLS" . | fromJson)) -}}
{{- if .c.database -}}
{{- $d := include "rondo.database" . | fromJson -}}
{{- $out = append $out (dict "name" "database" "path" "/etc/rondo/database/address" "secret" (default .c.secret $d.existingSecret) "items" (dict (ne $d.existingSecret "" | ternary $d.key "url") "url")) -}}
{{- $tls = append $tls (dict "name" "database" "tls" $d.tls) -}}
{{- end -}}
{{- if .c.jobs -}}
{{- $q := .root.Values.jobs -}}
{{- $out = append $out (dict "name" "jobs-access" "path" "/etc/rondo/jobs/access" "secret" $q.access.existingSecret "items" (dict $q.access.key "access.yaml")) -}}
{{- with $q.tls.existingSecret -}}{{- $out = append $out (dict "name" "jobs-tls" "path" "/etc/rondo/jobs/tls" "secret" . "items" (dict $q.tls.certKey "tls.crt" $q.tls.keyKey "tls.key")) -}}{{- end -}}
{{- $tls = append $tls (dict "name" "jobs" "tls" (dict "ca" $q.tls.clientCA "client" (dict "existingSecret" ""))) -}}
{{- end -}}
{{- range $tls -}}
{{- $at := printf "/etc/rondo/%s" .name -}}
{{- with .tls.ca -}}
{{- if .existingSecret -}}{{- $out = append $out (dict "name" (printf "%s-ca" (base $at)) "path" (printf "%s/ca" $at) "secret" .existingSecret "items" (dict .key "ca.crt")) -}}
{{- else if .existingConfigMap -}}{{- $out = append $out (dict "name" (printf "%s-ca" (base $at)) "path" (printf "%s/ca" $at) "configMap" .existingConfigMap "items" (dict .key "ca.crt")) -}}
{{- end -}}
{{- end -}}
{{- with .tls.client -}}
{{- if .existingSecret -}}{{- $out = append $out (dict "name" (printf "%s-client" (base $at)) "path" (printf "%s/client" $at) "secret" .existingSecret "items" (dict .certKey "tls.crt" .keyKey "tls.key")) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* The variables of a component, a YAML list. */}}
{{- define "rondo.env" -}}
{{- $c := .c -}}
- name: RONDO_CONFIG
  value: /etc/rondo/settings/rondo.yaml
{{- with $c.port }}
- name: RONDO_LISTEN
  value: ":{{ . }}"
{{- end }}
{{- if eq $c.component "worker" }}
- name: RONDO_SLOTS
  value: {{ include "rondo.scalar" $c.w.slots | quote }}
{{- with $c.w.tags }}
- name: RONDO_TAGS
  value: {{ join "," . | quote }}
{{- end }}
{{- else if and (eq $c.component "migrate") $c.w.streams }}
{{- with include "rondo.allTags" .root }}
- name: RONDO_TAGS
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- range $k, $v := $c.w.settings }}
{{- if not (kindIs "invalid" $v) }}
- name: RONDO_{{ $k | upper | replace "-" "_" }}
  value: {{ include "rondo.flat" $v | quote }}
{{- end }}
{{- end }}
{{- include "rondo.natsEnv" . }}
{{- if $c.database }}{{ include "rondo.databaseEnv" . }}{{ end }}
{{- if $c.jobs }}{{ include "rondo.jobsEnv" . }}{{ end }}
{{- if $c.port }}{{ include "rondo.telemetryEnv" . }}{{ end }}
{{- if eq $c.component "test" }}
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
{{- end }}
{{- with $c.w.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rondo.natsEnv" -}}
{{- $a := include "rondo.auth" . | fromJson -}}
{{- if eq $a.method "credentials" }}
- name: RONDO_NATS_CREDS
  value: /etc/rondo/nats/auth/nats.creds
{{- else if eq $a.method "nkey" }}
- name: RONDO_NATS_NKEY
  value: /etc/rondo/nats/auth/nats.nk
{{- else if eq $a.method "userPassword" }}
- name: RONDO_NATS_USER
  valueFrom:
    secretKeyRef:
      name: {{ default .c.secret $a.existingSecret }}
      key: {{ ne $a.existingSecret "" | ternary $a.keys.user "user" }}
- name: RONDO_NATS_PASSWORD_FILE
  value: /etc/rondo/nats/auth/password
{{- else if eq $a.method "token" }}
- name: RONDO_NATS_TOKEN_FILE
  value: /etc/rondo/nats/auth/token
{{- end }}
{{- with $a.inboxPrefix }}
- name: RONDO_NATS_INBOX_PREFIX
  value: {{ . }}
{{- end }}
{{- $tls := include "rondo.natsTLS" . | fromJson }}
{{- if or $tls.ca.existingSecret $tls.ca.existingConfigMap }}
- name: RONDO_NATS_TLS_CA
  value: /etc/rondo/nats/ca/ca.crt
{{- end }}
{{- if $tls.client.existingSecret }}
- name: RONDO_NATS_TLS_CERT
  value: /etc/rondo/nats/client/tls.crt
- name: RONDO_NATS_TLS_KEY
  value: /etc/rondo/nats/client/tls.key
{{- end }}
{{- end -}}

{{/* Certificates are named by variables that PostgreSQL's own clients know, so that the address in the Secret need not know where they are. */}}
{{- define "rondo.databaseEnv" -}}
{{- $d := include "rondo.database" . | fromJson }}
- name: RONDO_DATABASE_URL_FILE
  value: /etc/rondo/database/address/url
{{- with $d.password.existingSecret }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $d.password.key }}
{{- end }}
{{- with $d.tls.mode }}
- name: PGSSLMODE
  value: {{ . }}
{{- end }}
{{- if or $d.tls.ca.existingSecret $d.tls.ca.existingConfigMap }}
- name: PGSSLROOTCERT
  value: /etc/rondo/database/ca/ca.crt
{{- end }}
{{- if $d.tls.client.existingSecret }}
- name: PGSSLCERT
  value: /etc/rondo/database/client/tls.crt
- name: PGSSLKEY
  value: /etc/rondo/database/client/tls.key
{{- end }}
{{- end -}}

{{- define "rondo.jobsEnv" -}}
{{- $q := .root.Values.jobs }}
- name: RONDO_JOBS_LISTEN
  value: "0.0.0.0:{{ .c.jobs }}"
- name: RONDO_JOBS_ACCESS
  value: /etc/rondo/jobs/access/access.yaml
{{- if $q.tls.existingSecret }}
- name: RONDO_JOBS_TLS_CERT
  value: /etc/rondo/jobs/tls/tls.crt
- name: RONDO_JOBS_TLS_KEY
  value: /etc/rondo/jobs/tls/tls.key
{{- end }}
{{- if or $q.tls.clientCA.existingSecret $q.tls.clientCA.existingConfigMap }}
- name: RONDO_JOBS_CLIENT_CA
  value: /etc/rondo/jobs/ca/ca.crt
{{- end }}
{{- end -}}

{{- define "rondo.telemetryEnv" -}}
{{- $t := .root.Values.telemetry }}
{{- if $t.endpoint }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $t.endpoint | quote }}
{{- with $t.protocol }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ . }}
{{- end }}
{{- with $t.headers.existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $t.headers.key }}
{{- end }}
{{- with $t.sampler }}
- name: OTEL_TRACES_SAMPLER
  value: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" $t.samplerArg) }}{{ with include "rondo.scalar" $t.samplerArg }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}{{ end }}
{{- if $t.logs }}
- name: OTEL_LOGS_EXPORTER
  value: otlp
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ printf "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME),k8s.node.name=$(NODE_NAME)%s" (include "rondo.attributes" .) | quote }}
{{- end }}
{{- end -}}

{{- define "rondo.attributes" -}}
{{- with .c.pool }},rondo.pool={{ . }}{{ end }}
{{- range $k, $v := .root.Values.telemetry.resourceAttributes }},{{ $k }}={{ $v }}{{ end }}
{{- end -}}

{{/* The tags of all pools, with commas; "_" stands for work without one, which a pool without tags takes. */}}
{{- define "rondo.allTags" -}}
{{- $tags := list -}}
{{- range include "rondo.workloads" . | fromJsonArray -}}
{{- if eq .component "worker" -}}
{{- $tags = concat $tags (default (list "_") .w.tags) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $tags | uniq | sortAlpha -}}{{- $names = append $names (eq . "*" | ternary "_" .) -}}{{- end -}}
{{- $names | uniq | sortAlpha | join "," -}}
{{- end -}}

{{/* The checksum of what a component's own Secret has, as an annotation; "" if it has none. */}}
{{- define "rondo.checksums" -}}
{{- $inline := include "rondo.inline" . }}
{{- if ne $inline "{}" }}
checksum/secret: {{ $inline | sha256sum }}
{{- end }}
{{- end -}}

{{/* The name of the consumer of a task queue. Takes tag and activity. Letters that are none of a subject's are percent-encoded, byte by byte, and so are / and _. */}}
{{- define "rondo.consumer" -}}
{{- $tag := "_" -}}
{{- if and .tag (ne .tag "_") -}}{{- $tag = include "rondo.token" .tag -}}{{- end -}}
{{- printf "w_%s_%s" $tag (include "rondo.token" .activity) -}}
{{- end -}}

{{- define "rondo.token" -}}
{{- range regexFindAll "(?s)." . -1 -}}
{{- if regexMatch "^[-a-zA-Z0-9~:@+=,]$" . -}}{{- . -}}
{{- else -}}%{{- printf "% X" . | replace " " "%" -}}{{- end -}}
{{- end -}}
{{- end -}}
