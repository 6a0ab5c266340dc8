"""Values: names, service ports, endpoints, the resolved table, flows and verdicts. No I/O."""
