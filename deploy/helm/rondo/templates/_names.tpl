{{/* The names and labels of everything, and what each part of the release is made of. */}}

{{- define "rondo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "rondo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a Service or a Deployment selects by. It never changes. Takes root and c, a component. */}}
{{- define "rondo.selector" -}}
app.kubernetes.io/name: {{ include "rondo.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .c.component }}
{{- with .c.pool }}
rondo.run/pool: {{ . }}
{{- end }}
{{- end -}}

{{/*
All labels, as JSON, so that none stands twice. Takes root, c (optional), pod (whether it is one: those are not replaced because of another version of the chart) and
more, a list of maps; later ones win, but for the selector.
*/}}
{{- define "rondo.labelsJSON" -}}
{{- $l := dict -}}
{{- if not .pod -}}{{- $_ := set $l "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}{{- end -}}
{{- $_ := set $l "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $l "app.kubernetes.io/part-of" "rondo" -}}
{{- with .root.Chart.AppVersion -}}{{- $_ := set $l "app.kubernetes.io/version" (. | replace "+" "_" | trunc 63 | trimSuffix "-") -}}{{- end -}}
{{- $l = mergeOverwrite $l (deepCopy .root.Values.commonLabels) -}}
{{- range .more -}}{{- if . -}}{{- $l = mergeOverwrite $l (deepCopy .) -}}{{- end -}}{{- end -}}
{{- $_ := set $l "app.kubernetes.io/name" (include "rondo.name" .root) -}}
{{- $_ := set $l "app.kubernetes.io/instance" .root.Release.Name -}}
{{- with .c -}}{{- $l = mergeOverwrite $l (include "rondo.selector" (dict "root" $.root "c" .) | fromYaml) -}}{{- end -}}
{{- toJson $l -}}
{{- end -}}

{{/* The metadata of an object. Takes root, name, and if there are such: c, labels, annotations. */}}
{{- define "rondo.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "rondo.labelsJSON" (dict "root" .root "c" .c "more" (list .labels)) | fromJson | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) (deepCopy .root.Values.commonAnnotations) (deepCopy (default (dict) .annotations)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The components, as JSON. Each has: component, pool, name, command, port, jobs (the port at which it serves them, if it does), nats and database (whether it uses them), w (its values with the defaults under them) and
secret (the name of the Secret for values that stand in the values).
*/}}
{{- define "rondo.workloads" -}}
{{- $all := list -}}
{{- $full := include "rondo.fullname" . -}}
{{- if .Values.orchestrator.enabled -}}
{{- $w := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.orchestrator) -}}
{{- $name := printf "%s-orchestrator" $full -}}
{{- $all = append $all (dict "component" "orchestrator" "pool" "" "name" $name "command" "orchestrator" "port" 7071 "database" true "w" $w "secret" $name "at" "orchestrator" "nats" true "jobs" (.Values.jobs.enabled | ternary (int .Values.jobs.port) 0)) -}}
{{- end -}}
{{- range $pool, $own := .Values.workers.pools -}}
{{- if kindIs "map" $own -}}
{{- $w := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy $.Values.workers.defaults) (deepCopy $own) -}}
{{- $name := printf "%s-worker-%s" $full $pool -}}
{{- $all = append $all (dict "component" "worker" "pool" $pool "name" $name "command" "worker" "port" 7072 "database" false "w" $w "secret" $name "at" (printf "workers.pools.%s" $pool) "nats" true) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "rondo.migrate" -}}
{{- $name := printf "%s-migrate" (include "rondo.fullname" .) -}}
{{- $w := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.migration) -}}
{{- dict "component" "migrate" "pool" "" "name" $name "command" "migrate" "database" true "w" $w "secret" $name "at" "migration" "nats" .Values.migration.streams | toJson -}}
{{- end -}}

{{- define "rondo.test" -}}
{{- $full := include "rondo.fullname" . -}}
{{- $name := printf "%s-test" $full -}}
{{- $w := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.tests) -}}
{{- dict "component" "test" "pool" "" "name" $name "command" "start" "database" false "w" $w "secret" $name "at" "tests" "nats" true | toJson -}}
{{- end -}}

{{/* Whether `helm test` has something to start: yes with the stock image, and otherwise once an orchestration is named. */}}
{{- define "rondo.hasTest" -}}
{{- if and .Values.tests.enabled (or .Values.tests.orchestration (include "rondo.isStock" .Values.image)) -}}true{{- end -}}
{{- end -}}

{{/* Whether an image is the stock one, or a copy of it elsewhere, by its name. */}}
{{- define "rondo.isStock" -}}
{{- if eq (base .repository) "rondo" -}}true{{- end -}}
{{- end -}}

{{- define "rondo.serviceAccount" -}}
{{- $sa := .c.w.serviceAccount -}}
{{- default ($sa.create | ternary .c.name "default") $sa.name -}}
{{- end -}}

{{/* The image of a component. Takes base and own: what own says of the repository or the tag makes the digest of base another image's. */}}
{{- define "rondo.image" -}}
{{- $base := deepCopy .base -}}
{{- $own := default (dict) .own -}}
{{- if or $own.repository $own.tag $own.registry -}}{{- $_ := set $base "digest" "" -}}{{- end -}}
{{- if and $own.repository (ne $own.repository $base.repository) -}}{{- $_ := set $base "tag" "" -}}{{- end -}}
{{- $i := mergeOverwrite $base (deepCopy $own) -}}
{{- $tag := $i.tag -}}
{{- if and (not $tag) (not $i.digest) -}}{{- $tag = .root.Chart.AppVersion -}}{{- end -}}
{{- with $i.registry }}{{ . }}/{{ end }}{{ $i.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $i.digest }}@{{ . }}{{ end }}
{{- end -}}
