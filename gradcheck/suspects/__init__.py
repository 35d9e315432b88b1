"""From "wrong" to "wrong because": one hypothesis per kind of mistake, each tested against the numeric derivative.

A hypothesis repairs the gradient the way its mistake would have to be undone and asks whether the result agrees with
every measured number.  The table is ordered from the most specific mistake to the least; the first that explains all
is named.
"""

from __future__ import annotations

from .arrangement import right_numbers_wrong_shape, swapped, transposed
from .core import Guess, Suspect
from .precision import low_precision
from .scaling import conjugated, constant_factor, detached, sign
from .sums import broadcast, duplicates
from .terms import missing_term

__all__ = ["HYPOTHESES", "Guess", "Suspect", "diagnose"]

HYPOTHESES = (
    detached,
    swapped,
    sign,
    constant_factor,
    conjugated,
    right_numbers_wrong_shape,
    broadcast,
    transposed,
    duplicates,
    low_precision,
)


def diagnose(suspect: Suspect) -> Guess:
    """The first hypothesis that explains the evidence; a missing term where none does."""
    for hypothesis in HYPOTHESES:
        guess = hypothesis(suspect)
        if guess is not None:
            return guess
    return missing_term(suspect)
