{{/* What values.schema.json cannot say: what does not go together. Each message says what to change. */}}

{{- define "rondo.checks" -}}
{{- $root := . -}}
{{- range .Values.nats.urls -}}
{{- if contains "@" . -}}{{- fail "nats.urls: an address has a user or a password in it, which would stand in a ConfigMap; take it out, and use nats.auth" -}}{{- end -}}
{{- end -}}
{{- include "rondo.checkImage" (dict "at" "image" "image" .Values.image) -}}
{{- $components := include "rondo.workloads" . | fromJsonArray -}}
{{- if .Values.migration.enabled -}}{{- $components = append $components (include "rondo.migrate" . | fromJson) -}}{{- end -}}
{{- if include "rondo.hasTest" . -}}{{- $components = append $components (include "rondo.test" . | fromJson) -}}{{- end -}}
{{- if .Values.jobs.enabled -}}{{- include "rondo.checkJobs" . -}}{{- end -}}
{{- $accounts := dict -}}
{{- range $components -}}
{{- if .w.serviceAccount.create -}}
{{- $account := include "rondo.serviceAccount" (dict "c" .) -}}
{{- if hasKey $accounts $account -}}{{- fail (printf "%s.serviceAccount: %s would make the ServiceAccount %s, too; say create: false for all but one, or give each a name of its own" .at (get $accounts $account) $account) -}}{{- end -}}
{{- $_ := set $accounts $account .at -}}
{{- end -}}
{{- $args := dict "root" $root "c" . -}}
{{- if gt (len .name) 63 -}}{{- fail (printf "%s: the name %s is longer than the 63 letters that Kubernetes takes; choose a shorter release, pool or fullnameOverride" .at .name) -}}{{- end -}}
{{- range .w.extraEnv -}}
{{- if hasPrefix "RONDO_" .name -}}{{- fail (printf "%s.extraEnv: %s is a setting; say it under settings, so that it is checked" $args.c.at .name) -}}{{- end -}}
{{- end -}}
{{- with .w.image -}}{{- if .repository -}}{{- include "rondo.checkImage" (dict "at" (printf "%s.image" $args.c.at) "image" .) -}}{{- end -}}{{- end -}}
{{- include "rondo.checkAuth" $args -}}
{{- if .database -}}{{- include "rondo.checkDatabase" $args -}}{{- end -}}
{{- if .port -}}{{- include "rondo.checkWorkload" $args -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rondo.checkImage" -}}
{{- if and (not (include "rondo.isStock" .image)) (not .image.tag) (not .image.digest) -}}
{{- fail (printf "%s: which %s? Say its tag or its digest" .at .image.repository) -}}
{{- end -}}
{{- end -}}

{{- define "rondo.checkAuth" -}}
{{- $own := default (dict) (get (default (dict) .c.w.nats) "auth") -}}
{{- $at := gt (len $own) 0 | ternary (printf "%s.nats.auth" .c.at) "nats.auth" -}}
{{- $a := include "rondo.auth" . | fromJson -}}
{{- $inline := or $a.user $a.password $a.token -}}
{{- if and $a.existingSecret $inline -}}{{- fail (printf "%s: existingSecret and a user, password or token; say one of the two" $at) -}}{{- end -}}
{{- if and $a.existingSecret (not $a.method) -}}{{- fail (printf "%s: what is in the Secret %s? Say method: credentials, nkey, userPassword or token" $at $a.existingSecret) -}}{{- end -}}
{{- if and (has $a.method (list "credentials" "nkey")) (not $a.existingSecret) -}}{{- fail (printf "%s: method %s needs existingSecret, the Secret with the file" $at $a.method) -}}{{- end -}}
{{- if and (eq $a.method "userPassword") (not $a.existingSecret) (not (and $a.user $a.password)) -}}{{- fail (printf "%s: method userPassword needs existingSecret, or for development user and password" $at) -}}{{- end -}}
{{- if and (eq $a.method "token") (not $a.existingSecret) (not $a.token) -}}{{- fail (printf "%s: method token needs existingSecret, or for development token" $at) -}}{{- end -}}
{{- $tls := include "rondo.natsTLS" . | fromJson -}}
{{- include "rondo.checkCA" (dict "at" "nats.tls.ca" "ca" $tls.ca) -}}
{{- end -}}

{{- define "rondo.checkCA" -}}
{{- if and .ca.existingSecret .ca.existingConfigMap -}}{{- fail (printf "%s: existingSecret and existingConfigMap; say one of the two" .at) -}}{{- end -}}
{{- end -}}

{{- define "rondo.checkDatabase" -}}
{{- $d := include "rondo.database" . | fromJson -}}
{{- $at := (eq .c.at "migration") | ternary "migration.database" "database" -}}
{{- if and (not $d.url) (not $d.existingSecret) -}}
{{- fail (printf "%s: which database? Say existingSecret, a Secret whose key %q has an address like postgres://rondo@db:26257/rondo, or for development url" $at $d.key) -}}
{{- end -}}
{{- if and $d.url $d.existingSecret -}}{{- fail (printf "%s: existingSecret and url; say one of the two" $at) -}}{{- end -}}
{{- if and $d.url (not (regexMatch "^postgres(ql)?://" $d.url)) -}}
{{- fail (printf "%s.url: want an address like postgres://rondo@db:26257/rondo; a SQLite file cannot be shared by Pods" $at) -}}
{{- end -}}
{{- include "rondo.checkCA" (dict "at" (printf "%s.tls.ca" $at) "ca" $d.tls.ca) -}}
{{- end -}}

{{- define "rondo.checkJobs" -}}
{{- $q := .Values.jobs -}}
{{- $ca := or $q.tls.clientCA.existingSecret $q.tls.clientCA.existingConfigMap -}}
{{- if not .Values.orchestrator.enabled -}}{{- fail "jobs.enabled: orchestrators serve them, and orchestrator.enabled is false; say one of the two otherwise" -}}{{- end -}}
{{- if not $q.access.existingSecret -}}{{- fail (printf "jobs.access: who may do what? Say existingSecret, a Secret whose key %q has an access file (docs/job-queues.md)" $q.access.key) -}}{{- end -}}
{{- if and $ca (not $q.tls.existingSecret) -}}{{- fail "jobs.tls.clientCA: clients show certificates only where there is TLS; say jobs.tls.existingSecret, a Secret with the certificate of the server, too" -}}{{- end -}}
{{- include "rondo.checkCA" (dict "at" "jobs.tls.clientCA" "ca" $q.tls.clientCA) -}}
{{- if eq (int $q.port) 7071 -}}{{- fail "jobs.port: 7071 is that of metrics and health; choose another one" -}}{{- end -}}
{{- if gt (len (printf "%s-jobs" (include "rondo.fullname" .))) 63 -}}{{- fail "fullnameOverride: with -jobs behind it, it is longer than the 63 letters that Kubernetes takes; choose a shorter one" -}}{{- end -}}
{{- end -}}

{{- define "rondo.checkWorkload" -}}
{{- $w := .c.w -}}
{{- $at := .c.at -}}
{{- $drain := include "rondo.drain" . | int64 -}}
{{- $period := include "rondo.period" . | int64 -}}
{{- if lt $period (add $drain 5 | int64) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds: %d is too short: the end may take %d seconds (%s), and 5 more to disconnect; set at least %d, or nothing" $at $period $drain ((eq .c.component "worker") | ternary "shutdown-timeout and cancel-grace" "shutdown-timeout") (add $drain 5)) -}}
{{- end -}}
{{- if and (has "*" (default (list) $w.tags)) (gt (len $w.tags) 1) -}}{{- fail (printf "%s.tags: \"*\" takes any work, and stands alone" $at) -}}{{- end -}}
{{- $hpa := $w.autoscaling.hpa -}}
{{- $keda := $w.autoscaling.keda -}}
{{- if and $hpa.enabled $keda.enabled -}}{{- fail (printf "%s.autoscaling: hpa and keda are both enabled, and would work against each other; choose one" $at) -}}{{- end -}}
{{- if and $hpa.enabled (gt (int64 $hpa.minReplicas) (int64 $hpa.maxReplicas)) -}}{{- fail (printf "%s.autoscaling.hpa: minReplicas %d is more than maxReplicas %d" $at (int64 $hpa.minReplicas) (int64 $hpa.maxReplicas)) -}}{{- end -}}
{{- if $keda.enabled -}}
{{- if eq .c.component "orchestrator" -}}{{- fail "orchestrator.autoscaling.keda: it looks at task queues, which workers take; use hpa for orchestrators" -}}{{- end -}}
{{- if not (or $keda.taskQueues $keda.extraTriggers) -}}{{- fail (printf "%s.autoscaling.keda.taskQueues: by which task queues? List activities, like - activity: charge" $at) -}}{{- end -}}
{{- if and $keda.taskQueues (not $keda.monitoringEndpoint) -}}{{- fail (printf "%s.autoscaling.keda.monitoringEndpoint: where does NATS serve its monitoring? Like nats-headless.nats.svc:8222" $at) -}}{{- end -}}
{{- if gt (int64 $keda.minReplicas) (int64 $keda.maxReplicas) -}}{{- fail (printf "%s.autoscaling.keda: minReplicas %d is more than maxReplicas %d" $at (int64 $keda.minReplicas) (int64 $keda.maxReplicas)) -}}{{- end -}}
{{- range $keda.taskQueues -}}
{{- if gt (len (include "rondo.consumer" (dict "tag" .tag "activity" .activity))) 200 -}}{{- fail (printf "%s.autoscaling.keda.taskQueues: the name of %s is too long to be known here; say its consumer under extraTriggers" $at .activity) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $w.pdb.enabled (hasKey $w.pdb "minAvailable") (hasKey $w.pdb "maxUnavailable") (not (kindIs "invalid" $w.pdb.minAvailable)) (not (kindIs "invalid" $w.pdb.maxUnavailable)) -}}
{{- fail (printf "%s.pdb: minAvailable and maxUnavailable; say one of the two, and null for the other" $at) -}}
{{- end -}}
{{- end -}}
