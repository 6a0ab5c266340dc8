"""What the outside sees: health, metrics, log."""
