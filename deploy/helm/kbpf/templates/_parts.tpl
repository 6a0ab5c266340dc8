{{/* The parts of the DaemonSet that its containers share, and the names that more than one object has. */}}

{{- define "kbpf.labels" -}}
app.kubernetes.io/name: kbpf
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kbpf.configuration" -}}
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
{{ toYaml .Values.config }}
{{- end }}

{{- define "kbpf.apiServer" -}}
{{- with .Values.apiServer.host }}
KUBERNETES_SERVICE_HOST: {{ . | quote }}
{{- end }}
{{- with .Values.apiServer.port }}
KUBERNETES_SERVICE_PORT: {{ . | toString | quote }}
{{- end }}
{{- end }}

{{/* A name ends in a hash of the content: a change rolls out node by node, and does not reach pods that run. */}}
{{- define "kbpf.configurationName" -}}
kbpf-{{ include "kbpf.configuration" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "kbpf.apiServerName" -}}
kbpf-api-server-{{ include "kbpf.apiServer" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "kbpf.environment" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
envFrom:
  - configMapRef:
      name: {{ include "kbpf.apiServerName" . }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{- define "kbpf.securityContext" -}}
readOnlyRootFilesystem: true
{{- if eq .Values.datapath "iptables" }}
# /proc/sys is read-only without `privileged`: settings of connection tracking stay as the node has them.
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  add: [NET_ADMIN, NET_RAW, SYS_RESOURCE, DAC_OVERRIDE]
{{- else if .Values.restricted }}
privileged: false
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  # SYS_ADMIN opens the sockets of pods whose endpoint has gone; NET_RAW is for iptables-legacy; SYS_RESOURCE for the OOM
  # score and, before Linux 5.11, for the memory of maps.
  add: [BPF, PERFMON, NET_ADMIN, NET_RAW, SYS_ADMIN, SYS_RESOURCE, SYS_PTRACE, DAC_OVERRIDE]
appArmorProfile:
  type: Unconfined
seccompProfile:
  type: Unconfined
{{- else }}
privileged: true
{{- end }}
{{- end }}

{{- define "kbpf.volumeMounts" -}}
- name: config
  mountPath: /etc/kbpf
  readOnly: true
{{- if ne .Values.datapath "iptables" }}
# Pins must land in the node's bpffs, and stay when the pod goes. Only a privileged container may mount it there.
- name: bpffs
  mountPath: /sys/fs/bpf
  mountPropagation: {{ .Values.restricted | ternary "HostToContainer" "Bidirectional" }}
- name: cgroup
  mountPath: /sys/fs/cgroup
{{- end }}
# Shared with kubelet and everybody else who writes rules.
- name: xtables-lock
  mountPath: /run/xtables.lock
- name: modules
  mountPath: /lib/modules
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- end }}

{{- define "kbpf.volumes" -}}
- name: config
  configMap:
    name: {{ include "kbpf.configurationName" . }}
{{- if ne .Values.datapath "iptables" }}
- name: bpffs
  hostPath:
    path: /sys/fs/bpf
    type: DirectoryOrCreate
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
{{- end }}
- name: xtables-lock
  hostPath:
    path: /run/xtables.lock
    type: FileOrCreate
- name: modules
  hostPath:
    path: /lib/modules
    type: DirectoryOrCreate
- name: tmp
  emptyDir:
    medium: Memory
{{- end }}
