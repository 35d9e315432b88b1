"""Builds csrc/ with pybind11 where there is a compiler; without one the package installs and works all the same."""

import sys
from pathlib import Path

from setuptools import setup

SOURCES, HEADERS = (sorted(str(p) for p in Path("csrc").glob(pattern)) for pattern in ("*.cpp", "*.hpp"))
# never -march=native, so that a wheel runs anywhere: functions name the instruction sets they are compiled for
# GCC 12 takes the undefined lanes of its own intrinsics for uninitialized variables, a few hundred times
FLAGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-Wno-maybe-uninitialized", "-Wno-uninitialized"]


def extensions():
    """The C++ kernels, each optional: a failed build leaves the portable code in charge."""
    if not SOURCES:
        return []
    import numpy
    from pybind11.setup_helpers import Pybind11Extension

    return [
        Pybind11Extension(
            "entrenar.kernels.cpp._native",
            SOURCES,
            depends=HEADERS,
            include_dirs=[numpy.get_include()],
            extra_compile_args=FLAGS,
            cxx_std=17,
            optional=True,
        )
    ]


setup(license="MIT", ext_modules=extensions())
