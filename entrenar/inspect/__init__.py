"""F4: looking at tapes, and the conventions at the edges."""
from .tape import Tape, tape

__all__ = ["Tape", "tape"]
