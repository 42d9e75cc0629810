/* Measures the time that numpy spends in matrix products; loaded by `benchmarks/blas_clock.py`.
 *
 * Preloaded (LD_PRELOAD), the functions below take the place of those of numpy's OpenBLAS that
 * numpy calls for products. Each calls the function of OpenBLAS and adds the time that it took. The
 * time of the process's main thread and that of all other threads are counted separately.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t nanoseconds[2];

int64_t blas_clock_main(void) { return nanoseconds[0]; }
int64_t blas_clock_others(void) { return nanoseconds[1]; }

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void count(int64_t start) {
  int is_main = syscall(SYS_gettid) == getpid();
  atomic_fetch_add(&nanoseconds[is_main ? 0 : 1], now() - start);
}

static int keep_openblas(struct dl_phdr_info *library, size_t size, void *handle) {
  (void)size;
  if (strstr(library->dlpi_name, "openblas64_"))
    *(void **)handle = dlopen(library->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  return *(void **)handle != NULL;
}

static void *original(const char *name) {
  void *handle = NULL;
  dl_iterate_phdr(keep_openblas, &handle);
  void *function = handle ? dlsym(handle, name) : NULL;
  if (!function) abort();
  return function;
}

#define TIMED(NAME, PARAMETERS, ARGUMENTS)                   \
  void NAME PARAMETERS {                                     \
    static void(*function) PARAMETERS;                       \
    if (!function) function = original(#NAME);               \
    int64_t start = now();                                   \
    function ARGUMENTS;                                      \
    count(start);                                            \
  }

#define PRODUCTS(GEMM, SYRK, GEMV, REAL)                                                          \
  TIMED(GEMM,                                                                                     \
        (int order, int ta, int tb, int64_t m, int64_t n, int64_t k, REAL alpha, const void *a,   \
         int64_t lda, const void *b, int64_t ldb, REAL beta, void *c, int64_t ldc),               \
        (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                            \
  TIMED(SYRK,                                                                                     \
        (int order, int part, int ta, int64_t n, int64_t k, REAL alpha, const void *a,            \
         int64_t lda, REAL beta, void *c, int64_t ldc),                                           \
        (order, part, ta, n, k, alpha, a, lda, beta, c, ldc))                                     \
  TIMED(GEMV,                                                                                     \
        (int order, int ta, int64_t m, int64_t n, REAL alpha, const void *a, int64_t lda,         \
         const void *x, int64_t incx, REAL beta, void *y, int64_t incy),                          \
        (order, ta, m, n, alpha, a, lda, x, incx, beta, y, incy))

PRODUCTS(scipy_cblas_sgemm64_, scipy_cblas_ssyrk64_, scipy_cblas_sgemv64_, float)
PRODUCTS(scipy_cblas_dgemm64_, scipy_cblas_dsyrk64_, scipy_cblas_dgemv64_, double)
