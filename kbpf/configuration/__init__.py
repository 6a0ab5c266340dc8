"""The KubeProxyConfiguration: read from a file, overlaid with flags, checked, understood, and written out again."""
