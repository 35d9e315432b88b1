"""Builds csrc/ with pybind11 where there is a compiler; without one the package installs and works all the same."""

from pathlib import Path

from setuptools import setup

SOURCES = sorted(str(p) for p in Path("csrc").glob("*.cpp"))


def extensions():
    """The C++ kernels, each optional: a failed build leaves the portable code in charge."""
    if not SOURCES:
        return []
    from pybind11.setup_helpers import Pybind11Extension

    return [Pybind11Extension("entrenar.kernels.cpp._native", SOURCES, cxx_std=17, optional=True)]


setup(license="MIT", ext_modules=extensions())
