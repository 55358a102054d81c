{{/* The ports of addresses, as a JSON list, each once. Takes addresses and usual, the port where an address has none, by its scheme. */}}
{{- define "rondo.ports" -}}
{{- $ports := list -}}
{{- $usual := .usual -}}
{{- range .addresses -}}
{{- $port := regexFind ":[0-9]+/?$" . | trimAll ":/" -}}
{{- $ports = append $ports (default (get $usual (regexFind "^[a-z]+" .)) $port | int) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{/* A rule for NetworkPolicies: these ports, there. Takes to and ports. */}}
{{- define "rondo.egress" -}}
- ports:
    {{- range .ports }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The spec of the NetworkPolicy of a component. */}}
{{- define "rondo.networkPolicySpec" -}}
{{- $n := .root.Values.networkPolicy -}}
podSelector:
  matchLabels:
    {{- include "rondo.selector" . | nindent 4 }}
policyTypes: [Ingress, Egress]
{{- if or .c.port .c.w.networkPolicy.extraIngress }}
ingress:
  {{- with .c.port }}
  - ports:
      - port: {{ . }}
        protocol: TCP
    {{- with $n.ingressFrom }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with .c.jobs }}
  - ports:
      - port: {{ . }}
        protocol: TCP
    {{- with $n.jobsFrom }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with .c.w.networkPolicy.extraIngress }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- else }}
ingress: []
{{- end }}
egress:
  - ports:
      {{- range $n.dnsPorts }}
      - port: {{ . }}
        protocol: UDP
      - port: {{ . }}
        protocol: TCP
      {{- end }}
    {{- with $n.dnsTo }}
    to:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- if or (ne .c.component "migrate") .c.w.streams }}
  {{- include "rondo.egress" (dict "to" $n.natsTo "ports" (include "rondo.ports" (dict "addresses" .root.Values.nats.urls "usual" (dict "nats" 4222 "tls" 4222 "ws" 80 "wss" 443)) | fromJsonArray)) | nindent 2 }}
  {{- end }}
  {{- if .c.database }}
  {{- include "rondo.egress" (dict "to" $n.databaseTo "ports" $n.databasePorts) | nindent 2 }}
  {{- end }}
  {{- if and .c.port .root.Values.telemetry.endpoint }}
  {{- include "rondo.egress" (dict "to" $n.otlpTo "ports" (include "rondo.ports" (dict "addresses" (list .root.Values.telemetry.endpoint) "usual" (dict "http" 80 "https" 443)) | fromJsonArray)) | nindent 2 }}
  {{- end }}
  {{- with .c.w.networkPolicy.extraEgress }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
