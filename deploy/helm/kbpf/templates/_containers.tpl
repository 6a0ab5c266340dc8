{{/* The containers of a node's pod: kbpf itself, or what takes away what it left. */}}

{{- define "kbpf.proxy" -}}
containers:
  - name: kbpf
    {{- include "kbpf.environment" . | nindent 4 }}
    args:
      - --config=/etc/kbpf/config.yaml
      - --hostname-override=$(NODE_NAME)
      {{- if ne .Values.datapath "auto" }}
      - --datapath={{ .Values.datapath }}
      {{- end }}
      {{- with .Values.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    securityContext: {{- include "kbpf.securityContext" . | nindent 6 }}
    livenessProbe:
      httpGet:
        path: /livez
        port: 10256
      initialDelaySeconds: 30
      periodSeconds: 10
      failureThreshold: 6
    readinessProbe:
      httpGet:
        path: /healthz
        port: 10256
      periodSeconds: 2
    volumeMounts: {{- include "kbpf.volumeMounts" . | nindent 6 }}
{{- end }}

{{/* Ready when its node is clean; then it does nothing more. */}}
{{- define "kbpf.cleanup" -}}
initContainers:
  - name: cleanup
    {{- include "kbpf.environment" . | nindent 4 }}
    args: [cleanup]
    securityContext: {{- include "kbpf.securityContext" . | nindent 6 }}
    volumeMounts: {{- include "kbpf.volumeMounts" . | nindent 6 }}
containers:
  - name: cleaned
    {{- include "kbpf.environment" . | nindent 4 }}
    command: [sleep, infinity]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
{{- end }}
