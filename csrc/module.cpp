// The extension module entrenar.kernels.cpp._native.
#include "bindings.hpp"

PYBIND11_MODULE(_native, module) {
    bind_memory(module);
    bind_team(module);  // before the jobs
    bind_blas(module);
    bind_gemm(module);
}
