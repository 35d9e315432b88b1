"""Benchmarks: validate, then time both sides in turn in one run, and print the ratio."""
