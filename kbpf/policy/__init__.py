"""Decisions: endpoint categorisation, resolve(), the reference model. No I/O."""
