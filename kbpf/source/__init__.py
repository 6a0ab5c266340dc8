"""Where objects come from; every source delivers the same events."""
