// Products in pieces, each by a call of the BLAS that NumPy brought: threads take them without the GIL.
#include <pybind11/numpy.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "bindings.hpp"
#include "team.hpp"

namespace py = pybind11;

namespace {

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

template <class T, class Int>
using Gemm = void (*)(int, int, int, Int, Int, Int, T, const T*, Int, const T*, Int, T, T*, Int);

struct Matrix {  // with steps of one element along one axis, and steps no shorter than that axis along the other
    explicit Matrix(const py::array& x)
        : data(static_cast<const char*>(x.data())),
          rows(x.shape(0)),
          columns(x.shape(1)),
          row_step(x.strides(0)),
          column_step(x.strides(1)),
          turned(x.strides(1) != x.itemsize()),
          leading(
              std::max({(turned ? column_step : row_step) / x.itemsize(), turned ? rows : columns, py::ssize_t{1}})) {}
    const char* data;
    int64_t rows, columns, row_step, column_step;
    bool turned;
    int64_t leading;
    int mode() const { return turned ? TRANSPOSED : AS_IT_IS; }
};

// c = a b, `step` columns of it at a time, or rows where there are more of these.
class Pieces final : public entrenar::Job {
  public:
    // gemm: the address of cblas_sgemm or cblas_dgemm, for integers of 64 bits if `wide`.  c: contiguous rows.
    Pieces(uintptr_t gemm, bool wide, const py::array& a, const py::array& b, py::array& c, int64_t step)
        : gemm_(gemm),
          wide_(wide),
          single_(c.itemsize() == 4),
          a_(a),
          b_(b),
          c_(c),
          out_(static_cast<char*>(c.mutable_data())),
          across_(c_.columns >= c_.rows),
          total_(across_ ? c_.columns : c_.rows),
          step_(step) {
        if (a_.columns != b_.rows || a_.rows != c_.rows || b_.columns != c_.columns)
            throw py::value_error("mismatch of the sizes of a product's operands");
    }

    void run() noexcept override {
        for (int64_t start; (start = step_ * next_++) < total_;) {
            if (single_)
                wide_ ? piece<float, int64_t>(start) : piece<float, int>(start);
            else
                wide_ ? piece<double, int64_t>(start) : piece<double, int>(start);
        }
    }

  private:
    template <class T, class Int>
    void piece(int64_t start) {
        const int64_t size = std::min(step_, total_ - start);
        const char *a = a_.data + (across_ ? 0 : start * a_.row_step),
                   *b = b_.data + (across_ ? start * b_.column_step : 0);
        char* c = out_ + start * (across_ ? c_.column_step : c_.row_step);
        reinterpret_cast<Gemm<T, Int>>(gemm_)(
            ROW_MAJOR, a_.mode(), b_.mode(), Int(across_ ? a_.rows : size), Int(across_ ? size : b_.columns),
            Int(a_.columns), T(1), reinterpret_cast<const T*>(a), Int(a_.leading), reinterpret_cast<const T*>(b),
            Int(b_.leading), T(0), reinterpret_cast<T*>(c), Int(c_.leading));
    }

    uintptr_t gemm_;
    bool wide_, single_;
    Matrix a_, b_, c_;
    char* out_;
    bool across_;
    int64_t total_, step_;
    std::atomic<int64_t> next_{0};
};

}  // namespace

void bind_blas(py::module_& module) {
    py::class_<Pieces, entrenar::Job>(module, "Pieces")
        .def(py::init<uintptr_t, bool, const py::array&, const py::array&, py::array&, int64_t>());
}
