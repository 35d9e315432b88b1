// How csrc/gemm.cpp packs the operands of a product: what a panel is, and the split of float32 in three bfloat16.
//
// An operand is packed into panels of 32 rows (of A, or columns of B); a panel is a sequence of steps of 32 along the
// inner axis, a step holds TERMS pairs of tiles, a tile is 16 rows of 64 bytes: of A 16 rows x 32 numbers, of B 16
// pairs along the inner axis x 16 columns x 2 numbers, as the tile product wants it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace panels {

#define AVX "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"
#define WITH_AVX __attribute__((target(AVX)))
#define WITH_AMX __attribute__((target(AVX ",amx-tile,amx-bf16")))
#define INLINE __attribute__((always_inline)) inline

constexpr int TILE = 16, STEP = 32, PANEL = 32, TILE_BYTES = 1024, PAIR_BYTES = 2 * TILE_BYTES;
constexpr uint32_t LARGE = 0xfe000000u;  // 2^127, shifted left by one: the sign is gone

// packing ----------------------------------------------------------------------------------------------------------
WITH_AVX INLINE __m512 rounded(__m512 x) {  // to bfloat16, nearest even, as a float
    __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(int(0xffff0000))));
}

WITH_AVX INLINE __m512 widened(__m256i words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

WITH_AVX INLINE __m512i magnitude(__m512 x) { return _mm512_slli_epi32(_mm512_castps_si512(x), 1); }

WITH_AVX INLINE void transpose(__m512i* r) {  // 16 x 16 words of 32 bits
    __m512i t[16];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

INLINE uint32_t mask(int64_t count, int width) {  // the first `count` of `width` lanes, count may be negative
    return count >= width ? (width == 32 ? ~0u : (1u << width) - 1) : count > 0 ? (1u << count) - 1 : 0;
}

// A matrix of `outer` rows of `inner` numbers; one of the two strides (in elements) is 1.
template <class Source>
struct Operand {
    const Source* data;
    int64_t outer_stride, inner_stride, outer, inner;
};

// 16 rows of 16 pairs along the inner axis (or, where the outer axis is contiguous, their transpose), per term
WITH_AVX INLINE void load(const Operand<float>& x, int64_t o, int64_t k, __m512i (*r)[16], __m512i& largest) {
    const bool along = x.inner_stride == 1;
    const int64_t rows = along ? x.outer - o : (x.inner - k + 1) / 2;
    const __mmask16 first = __mmask16(along ? mask(x.inner - k, 16) : mask(x.outer - o, 16));
    const __mmask16 second = __mmask16(along ? mask(x.inner - k - 16, 16) : first);
    const float* p = x.data + o * x.outer_stride + k * x.inner_stride;
    for (int i = 0; i < TILE; i++) {
        __m512 a = _mm512_setzero_ps(), b = a;
        if (along && i < rows) {
            a = _mm512_maskz_loadu_ps(first, p + i * x.outer_stride);
            b = _mm512_maskz_loadu_ps(second, p + i * x.outer_stride + 16);
        } else if (i < rows) {
            a = _mm512_maskz_loadu_ps(first, p + 2 * i * x.inner_stride);
            if (k + 2 * i + 1 < x.inner) b = _mm512_maskz_loadu_ps(first, p + (2 * i + 1) * x.inner_stride);
        }
        largest = _mm512_max_epu32(largest, _mm512_max_epu32(magnitude(a), magnitude(b)));
        for (int t = 0; t < 3; t++) {
            if (along) {  // a holds the first 16 numbers of the row, b the next
                const __m512i both = __m512i(_mm512_cvtne2ps_pbh(b, a));
                r[t][i] = both;
                a = _mm512_sub_ps(a, widened(_mm512_castsi512_si256(both)));
                b = _mm512_sub_ps(b, widened(_mm512_extracti64x4_epi64(both, 1)));
            } else {  // a holds the even number of each pair, b the odd one
                const __m512 even = rounded(a), odd = rounded(b);
                r[t][i] = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd));
                a = _mm512_sub_ps(a, even);
                b = _mm512_sub_ps(b, odd);
            }
        }
    }
}

WITH_AVX INLINE void load(const Operand<uint16_t>& x, int64_t o, int64_t k, __m512i (*r)[16], __m512i&) {
    const bool along = x.inner_stride == 1;
    const int64_t rows = along ? x.outer - o : (x.inner - k + 1) / 2;
    const uint16_t* p = x.data + o * x.outer_stride + k * x.inner_stride;
    const __mmask32 row = mask(x.inner - k, 32);
    const __mmask16 lanes = __mmask16(mask(x.outer - o, 16));
    for (int i = 0; i < TILE; i++) {
        __m512i both = _mm512_setzero_si512();
        if (along && i < rows) {
            both = _mm512_maskz_loadu_epi16(row, p + i * x.outer_stride);
        } else if (i < rows) {
            both = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p + 2 * i * x.inner_stride));
            if (k + 2 * i + 1 < x.inner) {
                const __m256i odd = _mm256_maskz_loadu_epi16(lanes, p + (2 * i + 1) * x.inner_stride);
                both = _mm512_or_si512(both, _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
            }
        }
        r[0][i] = both;
    }
}

// Panels `first` to `last` of an operand, steps `from` to `to` of each, one panel after the other; false if it holds
// what a split can't.
template <class Source, int TERMS>
WITH_AVX bool pack(const Operand<Source>& x, bool columns, char* packed, int64_t first, int64_t last, int64_t from,
                   int64_t to) {
    const bool turned = columns == (x.inner_stride == 1);
    __m512i largest = _mm512_setzero_si512(), r[TERMS][16];
    for (int64_t panel = first; panel < last; panel++)
        for (int64_t step = from; step < to; step++, packed += TERMS * PAIR_BYTES)
            for (int half = 0; half < 2; half++) {
                load(x, panel * PANEL + half * TILE, step * STEP, r, largest);
                char* tile = packed + half * TILE_BYTES;
                for (int t = 0; t < TERMS; t++, tile += PAIR_BYTES) {
                    if (turned) transpose(r[t]);
                    for (int i = 0; i < TILE; i++) _mm512_store_si512(tile + 64 * i, r[t][i]);
                }
            }
    return _mm512_reduce_max_epu32(largest) < LARGE;
}

}  // namespace panels
