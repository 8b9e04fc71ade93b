// A CUDA driver for one pretended GPU: every function succeeds and does nothing. Launches are
// counted, and shown to `seen` where that is set.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

long launches = 0;
void (*seen)(void *function, const unsigned *sizes, void **params) = NULL;
static uintptr_t handles = 0;

#define NOTHING(name) int name(void) { return 0; }
#define GIVES(name, type, given) int name(type *out) { *out = given; return 0; }

NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxSetLimit)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncSetCacheConfig)
NOTHING(cuModuleUnload)
NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuTensorMapEncodeTiled)
GIVES(cuCtxGetCurrent, uintptr_t, 1)
GIVES(cuCtxGetDevice, int, 0)
GIVES(cuCtxGetLimit, size_t, 0)
GIVES(cuDeviceGet, int, 0)
GIVES(cuDeviceGetCount, int, 1)
GIVES(cuDevicePrimaryCtxRetain, uintptr_t, 1)
GIVES(cuDriverGetVersion, int, 13000)
GIVES(cuModuleGetFunction, uintptr_t, ++handles)
GIVES(cuModuleLoadData, uintptr_t, 1)
GIVES(cuOccupancyMaxActiveClusters, int, 1)

int cuStreamIsCapturing(void *stream, int *out) { *out = 0; return 0; }
int cuGetErrorString(int error, const char **out) { *out = "no error"; return 0; }
int cuFuncGetAttribute(int *out, int which) { *out = which == 0 ? 1024 : 0; return 0; }  // threads
int cuPointerGetAttribute(uint64_t *out, int which, uint64_t at) { *out = at; return 0; }

int cuDeviceGetAttribute(int *out, int which) {
  int shared = which == 81 || which == 97;  // of a multiprocessor, of a block that asks for it
  *out = shared ? 227 * 1024 : which == 16 ? 132 : which == 75 ? 9 : which == 76 ? 0 : 1;
  return 0;
}

int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra) {
  launches++;
  if (seen) {
    unsigned sizes[7];  // grid, threads, and bytes of shared memory
    memcpy(sizes, config, sizeof sizes);
    seen(function, sizes, params);
  }
  return 0;
}
