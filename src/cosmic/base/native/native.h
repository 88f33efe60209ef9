/* What every source of the library shares. */
#ifndef COSMIC_NATIVE_H
#define COSMIC_NATIVE_H

#include <stdint.h>

/* A function that Python calls; everything else is hidden. */
#if defined(_WIN32)
#define COSMIC_EXPORT __declspec(dllexport)
#else
#define COSMIC_EXPORT __attribute__((visibility("default")))
#endif

/* A loop over arrays: compiled for several widths of vectors, and chosen when the library is loaded. This needs GCC
 * and glibc; elsewhere the one portable version remains. The results are the same bits: nothing is fused, and sums
 * keep their order. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define COSMIC_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COSMIC_WIDE
#endif

#endif
