"""Hypothesis on machines that do other things as well: time is no measure of a property."""

from hypothesis import HealthCheck, settings

settings.register_profile("kbpf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kbpf")
