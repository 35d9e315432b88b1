// What module.cpp binds: one function per source file.
#pragma once

#include <pybind11/pybind11.h>

void bind_memory(pybind11::module_& module);
void bind_blas(pybind11::module_& module);
void bind_gemm(pybind11::module_& module);
void bind_team(pybind11::module_& module);
