"""Objects from an API server: list them, then watch them, for ever; see reflector.py for the order of things."""
