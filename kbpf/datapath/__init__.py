"""The parts that move traffic; see interface.py for what they share."""
