{{/* What Pods are made of. */}}

{{/* The volumes of a component. */}}
{{- define "rondo.volumes" -}}
- name: settings
  downwardAPI:
    items:
      - path: rondo.yaml
        fieldRef:
          fieldPath: metadata.annotations['rondo.run/settings']
- name: tmp
  emptyDir:
    sizeLimit: {{ .c.w.tmpSizeLimit }}
{{- range include "rondo.files" . | fromJsonArray }}
- name: {{ .name }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
  {{- else }}
  configMap:
    name: {{ .configMap }}
  {{- end }}
    items:
      {{- range $key, $path := .items }}
      - key: {{ $key }}
        path: {{ $path }}
      {{- end }}
{{- end }}
{{- with .c.w.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rondo.volumeMounts" -}}
- name: settings
  mountPath: /etc/rondo/settings
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- range include "rondo.files" . | fromJsonArray }}
- name: {{ .name }}
  mountPath: {{ .path }}
  readOnly: true
{{- end }}
{{- with .c.w.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The container of a component. Takes root, c, image, pullPolicy, program, args. */}}
{{- define "rondo.container" -}}
- name: {{ .c.component }}
  image: {{ .image | quote }}
  imagePullPolicy: {{ .pullPolicy }}
  {{- with .program }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  args:
    {{- toYaml .args | nindent 4 }}
  env:
    {{- include "rondo.env" . | nindent 4 }}
  {{- with .c.w.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .c.port }}
  ports:
    - name: http
      containerPort: {{ . }}
      protocol: TCP
    {{- with $.c.jobs }}
    - name: jobs
      containerPort: {{ . }}
      protocol: TCP
    {{- end }}
  {{- include "rondo.probes" $ | nindent 2 }}
  {{- end }}
  resources:
    {{- toYaml .c.w.resources | nindent 4 }}
  securityContext:
    {{- toYaml .c.w.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "rondo.volumeMounts" . | nindent 4 }}
{{- end -}}

{{/* /livez says nothing about NATS and the database, because a restart would not bring them back. /readyz does. */}}
{{- define "rondo.probes" -}}
{{- $p := .c.w.probes -}}
startupProbe:
  httpGet:
    path: /livez
    port: http
  {{- toYaml $p.startup | nindent 2 }}
livenessProbe:
  httpGet:
    path: /livez
    port: http
  {{- toYaml $p.liveness | nindent 2 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  {{- toYaml $p.readiness | nindent 2 }}
{{- end -}}

{{/* What all Pods say beside their containers. Variables of Services are left out, because those of a release that is called rondo look like settings. */}}
{{- define "rondo.podSpec" -}}
{{- $w := .c.w -}}
serviceAccountName: {{ include "rondo.serviceAccount" . }}
automountServiceAccountToken: {{ $w.serviceAccount.automountToken }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $w.podSecurityContext | nindent 2 }}
{{- with $w.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $w.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $w.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $w.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $w.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- include "rondo.volumes" . | nindent 2 }}
{{- end -}}

{{/* The file with settings, as an annotation: each Pod carries its own, so that an older one keeps what it was made with, whatever the release has become since. */}}
{{- define "rondo.settingsAnnotation" -}}
rondo.run/settings: |
  {{- include "rondo.settings" .root | trim | nindent 2 }}
{{- end -}}

{{/* The labels and annotations of a Pod. Takes root, c, annotations. */}}
{{- define "rondo.podMetadata" -}}
labels:
  {{- include "rondo.labelsJSON" (dict "root" .root "c" .c "pod" true "more" (list .c.w.podLabels)) | fromJson | toYaml | nindent 2 }}
annotations:
  {{- mergeOverwrite (dict) (deepCopy .root.Values.commonAnnotations) (deepCopy .c.w.podAnnotations) (default (dict) .annotations) (include "rondo.settingsAnnotation" . | fromYaml) | toYaml | nindent 2 }}
{{- end -}}

{{/* Pods of one rollout are spread among themselves, unless a constraint says by itself whom it means. */}}
{{- define "rondo.spread" -}}
{{- range .c.w.topologySpreadConstraints }}
{{- $s := deepCopy . }}
{{- if not (hasKey $s "labelSelector") }}
{{- $_ := set $s "labelSelector" (dict "matchLabels" (include "rondo.selector" $ | fromYaml)) }}
{{- $_ := set $s "matchLabelKeys" (list "pod-template-hash") }}
{{- end }}
- {{ toYaml $s | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/*
How many Pods a Deployment has; "" to leave that to an autoscaler. The API server makes 1 of a number that Helm takes out, until the autoscaler has looked. So as long as the number
in the cluster is Helm's, what is there is said again: always where Helm patches (Helm 3), and where Helm applies on the server (Helm 4) until somebody else has changed it, because Helm would
get into a conflict with who has. Without a cluster to look at, as with `helm template`, nothing is said.
*/}}
{{- define "rondo.replicas" -}}
{{- if not (or .c.w.autoscaling.hpa.enabled .c.w.autoscaling.keda.enabled) -}}
{{- .c.w.replicas -}}
{{- else -}}
{{- $live := lookup "apps/v1" "Deployment" .root.Release.Namespace .c.name -}}
{{- if $live -}}
{{- $applied := dict -}}
{{- range default (list) $live.metadata.managedFields -}}
{{- if and (eq .manager "helm") (eq .operation "Apply") -}}{{- $applied = .fieldsV1 -}}{{- end -}}
{{- end -}}
{{- if or (not $applied) (hasKey (default (dict) (get $applied "f:spec")) "f:replicas") -}}{{- int64 $live.spec.replicas -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
