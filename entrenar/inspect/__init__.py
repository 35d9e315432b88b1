"""F4: looking at tapes, and the conventions at the edges."""

from .conventions import Conventions, conventions
from .tape import Tape, tape

__all__ = ["Conventions", "Tape", "conventions", "tape"]
