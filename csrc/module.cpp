// The extension module entrenar.kernels.cpp._native.
#include "bindings.hpp"

PYBIND11_MODULE(_native, module) {
    bind_memory(module);
    bind_gemm(module);
    bind_team(module);
}
