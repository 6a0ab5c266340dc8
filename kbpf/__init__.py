"""kbpf: a Kubernetes service load balancer. Start reading at cli/main.py, then server.py and proxier.py."""

__version__ = "0.1.0"
