{{- define "cdc-outbox.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for the names of pods, and for "-setup". */}}
{{- define "cdc-outbox.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "cdc-outbox.selector" -}}
app.kubernetes.io/name: {{ include "cdc-outbox.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of what is not a pod of the connector: no selector finds it. */}}
{{- define "cdc-outbox.setupSelector" -}}
app.kubernetes.io/name: {{ include "cdc-outbox.name" . }}-setup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cdc-outbox.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "cdc-outbox.labels" -}}
{{ include "cdc-outbox.selector" . }}
{{ include "cdc-outbox.commonLabels" . }}
{{- end -}}

{{- define "cdc-outbox.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "cdc-outbox.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "cdc-outbox.configMap" -}}
{{- default (include "cdc-outbox.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "cdc-outbox.image" -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* What connector and setup have in common: the pod. */}}
{{- define "cdc-outbox.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # no variables named CDC_OUTBOX_…
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The container. */}}
{{- define "cdc-outbox.container" -}}
image: {{ include "cdc-outbox.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The error and its remedy are the last lines on standard error.
terminationMessagePolicy: FallbackToLogsOnError
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/cdc-outbox, readOnly: true}
  {{- range .Values.secretFiles }}
  - {name: {{ printf "secret-%s" . | quote }}, mountPath: {{ printf "/etc/cdc-outbox-secrets/%s" . | quote }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Its variables. */}}
{{- define "cdc-outbox.env" -}}
- name: CDC_OUTBOX_CONFIG
  value: /etc/cdc-outbox/config.yaml
- name: POD_NAMESPACE # with it, remedies name this connector
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- end -}}

{{/* Its volumes, with the configuration of the ConfigMap .configMap. */}}
{{- define "cdc-outbox.volumes" -}}
- name: config
  configMap: {name: {{ .configMap }}}
{{- range .Values.secretFiles }}
- name: {{ printf "secret-%s" . | quote }}
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod of an instance, or of a fleet's member. */}}
{{- define "cdc-outbox.template" -}}
metadata:
  labels:
    {{- include "cdc-outbox.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: cdc-outbox
    {{- if not .Values.serviceMonitor.enabled }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .Values.port | quote }}
    {{- end }}
    {{- if not .Values.existingConfigMap }}
    checksum/config: {{ include "cdc-outbox.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "cdc-outbox.serviceAccount" . }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- include "cdc-outbox.pod" . | nindent 2 }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "cdc-outbox.selector" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  containers:
    - name: cdc-outbox
      args: [run]
      env:
        {{- include "cdc-outbox.env" . | nindent 8 }}
        - name: CDC_OUTBOX_HTTP_LISTEN
          value: {{ printf ":%d" (int .Values.port) | quote }}
        {{- if .Values.fleet.enabled }}
        {{- include "cdc-outbox.member" . | nindent 8 }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: http, containerPort: {{ .Values.port }}}
      livenessProbe:
        httpGet: {path: /livez, port: http}
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      {{- include "cdc-outbox.container" . | nindent 6 }}
  volumes:
    {{- include "cdc-outbox.volumes" (merge (dict "configMap" (include "cdc-outbox.configMap" .)) .) | nindent 4 }}
{{- end -}}

{{/* The variables of a fleet's member: its name is the pod's, which outlasts the pod. */}}
{{- define "cdc-outbox.member" -}}
- name: CDC_OUTBOX_FLEET_MEMBER
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- if not (or .Values.existingConfigMap (dig "fleet" "rack" "" .Values.config) (has "CDC_OUTBOX_FLEET_RACK" (include "cdc-outbox.variables" . | fromJsonArray))) }}
- name: CDC_OUTBOX_FLEET_RACK # the node's zone, since Kubernetes 1.35; empty before
  valueFrom:
    fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}
{{- end }}
{{- end -}}

{{/* The names of the variables in extraEnv, as a list in JSON. */}}
{{- define "cdc-outbox.variables" -}}
{{- $variables := list -}}
{{- range .Values.extraEnv }}{{ $variables = append $variables .name }}{{ end -}}
{{- toJson $variables -}}
{{- end -}}

{{/* The configuration, or why there is none. */}}
{{- define "cdc-outbox.config" -}}
{{- $variables := include "cdc-outbox.variables" . | fromJsonArray -}}
{{- $url := or (dig "source" "url" "" .Values.config) (has "CDC_OUTBOX_SOURCE_URL" $variables) -}}
{{- range $name, $pipeline := .Values.config.pipelines -}}
{{- if not (or $url (dig "source" "url" "" (default dict $pipeline)) (has (printf "CDC_OUTBOX_PIPELINES_%s_SOURCE_URL" (upper $name)) $variables)) -}}
{{- include "cdc-outbox.noURL" (printf "config.pipelines.%s.source.url" $name) -}}
{{- end -}}
{{- else -}}
{{- if not (or $url .Values.config.discovery .Values.config.pipeline_template) }}{{ include "cdc-outbox.noURL" "config.source.url" }}{{ end -}}
{{- end -}}
{{- if hasKey (default dict .Values.config.http) "listen" -}}
{{- fail "config.http.listen is the chart's: set port" -}}
{{- end -}}
{{- $group := or (dig "fleet" "group" "" .Values.config) (has "CDC_OUTBOX_FLEET_GROUP" $variables) -}}
{{- if and .Values.fleet.enabled (not $group) -}}
{{- fail "fleet.enabled is true, and config.fleet.group is missing: name the fleet's group in Kafka, which no other fleet has" -}}
{{- else if and $group (not .Values.fleet.enabled) -}}
{{- fail "config.fleet.group is set, and fleet.enabled is not: set fleet.enabled=true, so that members keep their names" -}}
{{- end -}}
{{- if dig "fleet" "member" "" .Values.config -}}
{{- fail "config.fleet.member would be the name of all members: leave it out, and each has the name of its pod" -}}
{{- end -}}
{{- include "cdc-outbox.noSecrets" (dict "at" "config" "value" .Values.config) -}}
{{- $grace := int .Values.terminationGracePeriodSeconds -}}
{{- include "cdc-outbox.stops" (dict "at" "config" "drain" (dig "errors" "drain_timeout" "20s" .Values.config) "grace" $grace) -}}
{{- range $name, $pipeline := .Values.config.pipelines -}}
{{- include "cdc-outbox.stops" (dict "at" (printf "config.pipelines.%s" $name) "drain" (dig "errors" "drain_timeout" "0s" (default dict $pipeline)) "grace" $grace) -}}
{{- end -}}
{{- toYaml .Values.config -}}
{{- end -}}

{{/* Refuses a time to drain that is longer than the pod has. */}}
{{- define "cdc-outbox.stops" -}}
{{- $drain := toString .drain -}}
{{- $whole := "^(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?$" -}}
{{- if regexMatch $whole $drain -}}
{{- $seconds := add (regexReplaceAll $whole $drain "0${1}" | atoi | mul 3600) (regexReplaceAll $whole $drain "0${2}" | atoi | mul 60) (regexReplaceAll $whole $drain "0${3}" | atoi) -}}
{{- if ge (int $seconds) .grace -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and %s.errors.drain_timeout %s: a stop would be cut off. Set terminationGracePeriodSeconds to %d or more" .grace .at $drain (add $seconds 10)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "cdc-outbox.noURL" -}}
{{- fail (printf "%s is missing: set it to postgres://user@host:5432/database?sslmode=verify-full&sslrootcert=system, or to ${SOURCE_URL} with a Secret in envFrom that has this key. A whole configuration that exists is named by existingConfigMap" .) -}}
{{- end -}}

{{/* Refuses secrets in the configuration, at any depth. */}}
{{- define "cdc-outbox.noSecrets" -}}
{{- $at := .at -}}
{{- range $key, $value := .value -}}
{{- $path := printf "%s.%s" $at $key -}}
{{- if kindIs "map" $value -}}
{{- include "cdc-outbox.noSecrets" (dict "at" $path "value" $value) -}}
{{- else if and $value (has $key (list "password" "token" "client_secret" "secret_key" "session_token" "otlp_headers")) (not (contains "${" (toString $value))) -}}
{{- fail (printf "%s is a secret, and anybody who may read ConfigMaps would see it: put it into a Secret, name this in envFrom, and write ${NAME} here, or in secretFiles, and write ${file:/etc/cdc-outbox-secrets/SECRET/KEY}" $path) -}}
{{- else if and (has $key (list "url" "names_url")) (regexMatch "://[^/@:]*:[^$@/]+@|password='?[^'$&\\s]" (toString $value)) -}}
{{- fail (printf "%s has a password, and anybody who may read ConfigMaps would see it: put the URL into a Secret, name this in envFrom, and write ${NAME} here" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
