// Matrix products on the bfloat16 units of a processor (AMX tiles, else AVX512-BF16), float32 accumulators.
//
// bfloat16 operands are multiplied as they are.  A float32 operand is split into the sum of three bfloat16 numbers,
// x = x1 + x2 + x3, which together hold its 24 bits, and the six products with i + j <= 4 are added up, the small ones
// first; what is left out is below 2^-26 of |x y| (Henry, Tang, Heinecke 2019, "Leveraging the bfloat16 artificial
// intelligence datatype for higher-precision computations").  The result is nearer to the exact one than an SGEMM's.
// It has no infinities or NaN: `pack` says if an operand holds one (or a number of 2^127 or more), and the caller
// turns to BLAS.  Subnormal parts count as 0, an absolute error of at most 2^-126 per element.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <type_traits>

#include "bindings.hpp"
#include "team.hpp"

namespace py = pybind11;

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#include <cpuid.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "panels.hpp"

namespace {

using namespace panels;

// what the processor has -------------------------------------------------------------------------------------------
uint64_t enabled_states() {  // XCR0: the register files the operating system saves
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t(high) << 32) | low;
}

std::string detect() {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))  // OSXSAVE
        return "";
    const uint64_t states = enabled_states();
    uint32_t b7, d7, a71;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c, &d7) || !__get_cpuid_count(7, 1, &a71, &b, &c, &d)) return "";
    const uint32_t foundation = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // F, DQ, BW, VL
    if ((b7 & foundation) != foundation || !(a71 & (1u << 5)) || (states & 0xe6) != 0xe6) return "";
    const bool tiles = (d7 & (1u << 22)) && (d7 & (1u << 24)) && (states & 0x60000) == 0x60000;
    constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM: Linux grants tiles to those who ask
    return tiles && syscall(SYS_arch_prctl, request, tile_data) == 0 ? "amx" : "avx512";
}

const std::string& unit() {
    static const std::string found = detect();
    return found;
}

// products ---------------------------------------------------------------------------------------------------------
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

WITH_AMX void open_tiles() {
    TileConfig config;
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("" : : "r"(&config) : "memory");  // the intrinsic tells the compiler of its first 8 bytes only
    _tile_loadconfig(&config);
}

// Rows of a matrix, `stride` numbers from one to the next.
template <class T>
struct Rows {
    T* data;
    int64_t stride;
    T* at(int64_t row, int64_t column) const { return data + row * stride + column; }
    size_t bytes() const { return size_t(stride) * sizeof(T); }
};

// Tiles 0-3 hold a 32 x 32 block of the result, 4 and 5 a pair of A, 6 and 7 a pair of B.
// Macros: the compiler's tile intrinsics are assembler statements with the number of the tile in their text.
#define LOAD_PAIR(first, second, p)                \
    do {                                           \
        _tile_loadd(first, (p), 64);               \
        _tile_loadd(second, (p) + TILE_BYTES, 64); \
    } while (0)
#define LOAD_A(p) LOAD_PAIR(4, 5, p)
#define LOAD_B(p) LOAD_PAIR(6, 7, p)
#define MULTIPLY()               \
    do {                         \
        _tile_dpbf16ps(0, 4, 6); \
        _tile_dpbf16ps(1, 4, 7); \
        _tile_dpbf16ps(2, 5, 6); \
        _tile_dpbf16ps(3, 5, 7); \
    } while (0)

struct Amx {
    static constexpr const char* name = "amx";
    WITH_AMX static void begin() { open_tiles(); }
    WITH_AMX static void end() { _tile_release(); }

    // The 32 x 32 sums over `steps` steps of two panels.
    template <int TERMS>
    WITH_AMX static void block(const char* a, const char* b, int64_t steps, Rows<float> to) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t k = 0; k < steps; k++, a += TERMS * PAIR_BYTES, b += TERMS * PAIR_BYTES) {
            LOAD_A(a);
            if constexpr (TERMS == 3) {  // a1 b3, a1 b2, a2 b2, a2 b1, a3 b1, a1 b1: the small ones first
                LOAD_B(b + 2 * PAIR_BYTES);
                MULTIPLY();
                LOAD_B(b + PAIR_BYTES);
                MULTIPLY();
                LOAD_A(a + PAIR_BYTES);
                MULTIPLY();
                LOAD_B(b);
                MULTIPLY();
                LOAD_A(a + 2 * PAIR_BYTES);
                MULTIPLY();
                LOAD_A(a);
                MULTIPLY();
            } else {
                LOAD_B(b);
                MULTIPLY();
            }
        }
        _tile_stored(0, to.at(0, 0), to.bytes());
        _tile_stored(1, to.at(0, TILE), to.bytes());
        _tile_stored(2, to.at(TILE, 0), to.bytes());
        _tile_stored(3, to.at(TILE, TILE), to.bytes());
    }
};

struct Avx512 {
    static constexpr const char* name = "avx512";
    static void begin() {}
    static void end() {}

    template <int TERMS>
    WITH_AVX static void block(const char* a, const char* b, int64_t steps, Rows<float> to) {
        static_assert(TERMS == 1, "six products on this unit are slower than an SGEMM");
        constexpr int ROWS = 8;  // 8 x 2 accumulators: what the registers hold
        for (int first = 0; first < PANEL; first += ROWS) {
            __m512 sum[ROWS][2] = {};
            const char *x = a + (first / TILE) * TILE_BYTES + (first % TILE) * 64, *y = b;
            for (int64_t k = 0; k < steps; k++, x += PAIR_BYTES, y += PAIR_BYTES)
                for (int pair = 0; pair < TILE; pair++) {
                    const __m512i left = _mm512_load_si512(y + 64 * pair),
                                  right = _mm512_load_si512(y + TILE_BYTES + 64 * pair);
                    for (int i = 0; i < ROWS; i++) {
                        const __m512bh row =
                            (__m512bh)_mm512_set1_epi32(*reinterpret_cast<const int*>(x + 64 * i + 4 * pair));
                        sum[i][0] = _mm512_dpbf16_ps(sum[i][0], row, (__m512bh)left);
                        sum[i][1] = _mm512_dpbf16_ps(sum[i][1], row, (__m512bh)right);
                    }
                }
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < 2; j++) _mm512_storeu_ps(to.at(first + i, TILE * j), sum[i][j]);
        }
    }
};

WITH_AVX INLINE __m512 read(const float* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
WITH_AVX INLINE __m512 read(const uint16_t* p, __mmask16 m) { return widened(_mm256_maskz_loadu_epi16(m, p)); }
WITH_AVX INLINE void write(float* p, __mmask16 m, __m512 x) { _mm512_mask_storeu_ps(p, m, x); }
WITH_AVX INLINE void write(uint16_t* p, __mmask16 m, __m512 x) {
    _mm256_mask_storeu_epi16(p, m, __m256i(_mm512_cvtneps_pbh(x)));
}

// Where a result goes; `bias`, if any, is added to every row once the sums are complete.
template <class Target>
struct Result {
    Rows<Target> data;
    int64_t rows, columns;
    const float* bias;

    // Whether a block of fresh sums can be stored where it belongs.
    bool holds(int64_t row, int64_t column) const {
        return std::is_same_v<Target, float> && rows - row >= PANEL && columns - column >= PANEL;
    }
    Rows<float> at(int64_t row, int64_t column) const {
        return {reinterpret_cast<float*>(data.at(row, column)), data.stride};
    }

    // What is left to do for the block at (row, column).  sums: null if they are there already.
    WITH_AVX void settle(int64_t row, int64_t column, const float* sums, bool fresh, bool complete) const {
        const bool biased = bias && complete;  // adding 0 would turn -0 into 0
        if (!sums && !biased) return;
        for (int half = 0; half < PANEL; half += TILE) {
            const __mmask16 m = __mmask16(mask(columns - column - half, TILE));
            const __m512 addend = biased ? read(bias + column + half, m) : _mm512_setzero_ps();
            for (int64_t r = 0; r < std::min<int64_t>(rows - row, PANEL); r++) {
                Target* here = data.at(row + r, column + half);
                __m512 x = sums ? _mm512_load_ps(sums + r * PANEL + half) : read(here, m);
                if (sums && !fresh) x = _mm512_add_ps(x, read(here, m));
                write(here, m, biased ? _mm512_add_ps(x, addend) : x);
            }
        }
    }
};

constexpr int64_t BLOCK_BYTES = 2 << 20;

// Memory of a thread for a block of panels of A: one page where the system has such.  Null: there is none.
char* block_memory() {
    struct Block {
        char* data = static_cast<char*>(std::aligned_alloc(BLOCK_BYTES, BLOCK_BYTES));
        Block() {
            if (data) madvise(data, BLOCK_BYTES, MADV_HUGEPAGE);
        }
        ~Block() { std::free(data); }
    };
    thread_local Block block;
    return block.data;
}

// One product, or a chunk of one, that any number of threads carry out together: each calls `run`, packs panels of B
// until there are none left, waits for those the others are at, then takes block after block of A's panels, packs it
// into its own cache and multiplies it with all of B.  How many panels a block has changes no bit of the result.
class Product final : public entrenar::Job {
  public:
    struct Side {  // of an array with steps of one element along one axis
        explicit Side(const py::array& x)
            : data(x.data()),
              outer_stride(x.strides(0) / x.itemsize()),
              inner_stride(x.strides(1) / x.itemsize()),
              outer(x.shape(0)),
              inner(x.shape(1)) {}
        const void* data;
        int64_t outer_stride, inner_stride, outer, inner;
    };

    // c = A B^T (+ bias along B), arrays that outlive this, as does `packed`, memory for all of B's panels.
    // turned: c is the transpose of that, and `bias` goes along A.  accumulate: c += it.
    Product(bool tiles, bool turned, bool accumulate, const py::array& a, const py::array& b, py::array& packed,
            py::array& c, const std::optional<py::array>& bias, int threads)
        : tiles_(tiles),
          split_(a.itemsize() == 4),
          turned_(turned),
          accumulate_(accumulate),
          low_(c.itemsize() == 2),
          a_(a),
          b_(b),
          c_(c.mutable_data()),
          stride_(c.strides(0) / c.itemsize()),
          bias_(bias ? static_cast<const float*>(bias->data()) : nullptr) {
        if (a_.inner != b_.inner || c.shape(0) != (turned ? b_ : a_).outer || c.shape(1) != (turned ? a_ : b_).outer)
            throw py::value_error("mismatch of the sizes of a product's operands");
        steps_ = share(a_.inner, STEP);
        // bfloat16 results in one go: sums are rounded once
        depth_ = low_ ? steps_ : share(steps_, share(steps_, split_ ? 16 : 64));
        const int64_t room = BLOCK_BYTES * 7 / 16 / (depth_ * (split_ ? 3 : 1) * PAIR_BYTES);
        const int64_t rounds = share(panels_of(a_), threads * std::clamp<int64_t>(room, 1, 8));
        height_ = share(panels_of(a_), threads * rounds);  // as many blocks for one thread as for another
        blocks_ = share(panels_of(a_), height_);
        pack_jobs_ = share(panels_of(b_), PANELS_PER_JOB);
        b_packed_ = static_cast<char*>(packed.mutable_data());
        b_packed_ += -reinterpret_cast<uintptr_t>(b_packed_) % 64;
    }

    // Bytes of `packed` for this B.
    static int64_t room(const py::array& b) {
        const Side x(b);
        return panels_of(x) * share(x.inner, STEP) * (b.itemsize() == 4 ? 3 : 1) * PAIR_BYTES + 64;
    }

    // False if an operand holds what a split can't, or memory ran out; then the result is unspecified.
    bool fit() const { return fit_; }

    void run() noexcept override {
        for (int64_t i; (i = next_pack_++) < pack_jobs_; packed_++) pack_columns(i);
        for (int spins = 0; packed_ < pack_jobs_; spins++) spins < 1000 ? _mm_pause() : (void)sched_yield();
        for (int64_t i; fit_ && (i = next_block_++) < blocks_;) multiply_block(i);
    }

  private:
    static constexpr int64_t PANELS_PER_JOB = 2;

    template <class T>
    static Operand<T> operand(const Side& x) {
        return {static_cast<const T*>(x.data), x.outer_stride, x.inner_stride, x.outer, x.inner};
    }
    static int64_t share(int64_t total, int64_t count) { return (total + count - 1) / count; }  // rounded up
    static int64_t panels_of(const Side& x) { return share(x.outer, PANEL); }

    template <class Source, int TERMS>
    void pack_side(const Side& x, bool columns, char* packed, int64_t first, int64_t last, int64_t from, int64_t to) {
        if (!pack<Source, TERMS>(operand<Source>(x), columns, packed, first, last, from, to)) fit_ = false;
    }

    void pack_columns(int64_t job) {
        const int64_t first = job * PANELS_PER_JOB, last = std::min(first + PANELS_PER_JOB, panels_of(b_));
        char* packed = b_packed_ + first * steps_ * (split_ ? 3 : 1) * PAIR_BYTES;
        if (split_)
            pack_side<float, 3>(b_, !turned_, packed, first, last, 0, steps_);
        else
            pack_side<uint16_t, 1>(b_, !turned_, packed, first, last, 0, steps_);
    }

    void multiply_block(int64_t block) {
        const int64_t rows = turned_ ? b_.outer : a_.outer, columns = turned_ ? a_.outer : b_.outer;
        const Result<float> full{{static_cast<float*>(c_), stride_}, rows, columns, bias_};
        const Result<uint16_t> half{{static_cast<uint16_t*>(c_), stride_}, rows, columns, bias_};
        if (split_)
            multiply<Amx, float, 3>(full, block);
        else if (tiles_)
            low_ ? multiply<Amx, uint16_t, 1>(half, block) : multiply<Amx, uint16_t, 1>(full, block);
        else
            low_ ? multiply<Avx512, uint16_t, 1>(half, block) : multiply<Avx512, uint16_t, 1>(full, block);
    }

    template <class Unit, class Source, int TERMS, class Target>
    void multiply(const Result<Target>& c, int64_t block) {
        constexpr int64_t bytes = TERMS * PAIR_BYTES;
        const int64_t first = block * height_, last = std::min(first + height_, panels_of(a_));
        char* own = block_memory();
        if (!own) {
            fit_ = false;
            return;
        }
        alignas(64) float memory[2][PANEL * PANEL];
        Unit::begin();
        for (int64_t k = 0; k < steps_; k += depth_) {
            const int64_t deep = std::min(depth_, steps_ - k);
            pack_side<Source, TERMS>(a_, turned_, own, first, last, k, k + deep);
            const bool fresh = k == 0 && !accumulate_, complete = k + deep == steps_;
            // settled a block later: the processor need not wait for its tiles
            struct Pending {
                int64_t row, column;
                float* sums;
            } now{}, before{-1, 0, nullptr};
            for (int64_t j = 0; j < panels_of(b_); j++)
                for (int64_t i = first; i < last; i++, before = now) {
                    const char *x = own + (i - first) * deep * bytes, *y = b_packed_ + (j * steps_ + k) * bytes;
                    now.row = (turned_ ? j : i) * PANEL, now.column = (turned_ ? i : j) * PANEL;
                    const bool there = fresh && c.holds(now.row, now.column);
                    now.sums = there ? nullptr : memory[before.sums == memory[0]];
                    Unit::template block<TERMS>(turned_ ? y : x, turned_ ? x : y, deep,
                                                there ? c.at(now.row, now.column) : Rows<float>{now.sums, PANEL});
                    if (before.row >= 0) c.settle(before.row, before.column, before.sums, fresh, complete);
                }
            c.settle(before.row, before.column, before.sums, fresh, complete);
        }
        Unit::end();
    }

    bool tiles_, split_, turned_, accumulate_, low_;
    Side a_, b_;
    char* b_packed_;
    void* c_;
    int64_t stride_;
    const float* bias_;
    int64_t steps_, depth_, height_, pack_jobs_, blocks_;
    std::atomic<int64_t> next_pack_{0}, packed_{0}, next_block_{0};
    std::atomic<bool> fit_{true};
};

}  // namespace

void bind_gemm(py::module_& module) {
    module.def("gemm_unit", [] { return unit(); });
    py::class_<Product, entrenar::Job>(module, "Product")
        .def(py::init<bool, bool, bool, const py::array&, const py::array&, py::array&, py::array&,
                      const std::optional<py::array>&, int>())
        .def_static("room", &Product::room)
        .def_property_readonly("fit", &Product::fit);
}

#else

void bind_gemm(py::module_& module) {
    module.def("gemm_unit", [] { return std::string(); });
}

#endif
