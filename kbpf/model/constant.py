"""The base of enumerations whose members are parts of keys.

Enum hashes a member by its name, in Python; tables are asked for such keys ten times for each endpoint of a start.
"""

from enum import Enum


class Constant(Enum):
    __hash__ = object.__hash__
    """By identity, which is what members are compared by."""
