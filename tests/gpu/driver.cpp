// A driver in which kernels do nothing: memory of the device is memory of the host, and what is asked for is printed. It refuses what NVIDIA's
// documentation says that theirs refuses. NVIDIA's packages take it for theirs where it is found as libcuda.so.1 (test_cuda_packages.py).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>

#define DRIVER(name, ...) extern "C" int name(__VA_ARGS__)

static thread_local void *current;
static char context[8];
static bool capturing[64];
static int streams, events;
static struct { uint64_t begin, end; } blocks[1024];
static int allocated;

static uint64_t number(void *stream) { return (uint64_t)stream < 64 ? (uint64_t)stream : 0; }

static bool is_ours(uint64_t address) {
    for (int i = 0; i < allocated; i++)
        if (blocks[i].begin <= address && address < blocks[i].end) return true;
    return false;
}

DRIVER(cuInit, unsigned) { return 0; }
DRIVER(cuDriverGetVersion, int *version) { return *version = 13000, 0; }
DRIVER(cuGetErrorName, int code, const char **text) { return *text = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN", 0; }
DRIVER(cuGetErrorString, int, const char **text) { return *text = "refused", 0; }

DRIVER(cuDeviceGetCount, int *count) { return *count = 1, 0; }
DRIVER(cuDeviceGet, int *device, int ordinal) { return *device = ordinal, 0; }
DRIVER(cuDeviceGetName, char *text, int size, int) { return snprintf(text, size, "idle"), 0; }
DRIVER(cuDeviceGetAttribute, int *value, int which, int) {
    return *value = which == 75 ? 9 : which == 76 ? 0 : which == 16 ? 132 : which == 97 ? 232448 : 1, 0;
}
DRIVER(cuDevicePrimaryCtxRetain, void **found, int) { return *found = context, 0; }
DRIVER(cuDevicePrimaryCtxRelease_v2, int) { return 0; }
DRIVER(cuCtxGetCurrent, void **found) { return *found = current, 0; }
DRIVER(cuCtxSetCurrent, void *given) { return current = given, 0; }
DRIVER(cuCtxGetDevice, int *device) { return *device = 0, current ? 0 : 201; }
DRIVER(cuCtxGetStreamPriorityRange, int *least, int *greatest) { return *least = 0, *greatest = -5, 0; }

DRIVER(cuStreamCreateWithPriority, void **stream, unsigned, int) { return *stream = (void *)(uint64_t)(16 + streams++), 0; }
DRIVER(cuStreamDestroy_v2, void *) { return 0; }
DRIVER(cuStreamSynchronize, void *stream) { return capturing[number(stream)] ? 900 : 0; }
DRIVER(cuStreamWaitEvent, void *, void *, unsigned) { return 0; }
DRIVER(cuEventCreate, void **event, unsigned) { return *event = (void *)(uint64_t)(4096 + events++), 0; }
DRIVER(cuEventDestroy_v2, void *) { return 0; }
DRIVER(cuEventRecord, void *, void *) { return 0; }
DRIVER(cuEventSynchronize, void *) { return 0; }
DRIVER(cuEventQuery, void *) { return 0; }
DRIVER(cuEventElapsedTime_v2, float *milliseconds, void *, void *) { return *milliseconds = 1.5f, 0; }

DRIVER(cuDeviceGetMemPool, void **pool, int) { return *pool = context, 0; }
DRIVER(cuDeviceGetDefaultMemPool, void **pool, int) { return *pool = context, 0; }
DRIVER(cuMemPoolGetAttribute, void *, int, uint64_t *value) { return *value = 0, 0; }
DRIVER(cuMemPoolSetAttribute, void *, int, void *) { return 0; }
DRIVER(cuMemAllocFromPoolAsync, uint64_t *address, size_t size, void *, void *) {
    *address = (uint64_t)aligned_alloc(512, (size + 511) / 512 * 512);
    blocks[allocated++ % 1024] = {*address, *address + size};
    return 0;
}
DRIVER(cuMemFreeAsync, uint64_t, void *) { return 0; }
DRIVER(cuMemcpyHtoDAsync_v2, uint64_t to, const void *from, size_t size, void *) { return memcpy((void *)to, from, size), 0; }
DRIVER(cuMemcpyDtoHAsync_v2, void *to, uint64_t from, size_t size, void *) { return memcpy(to, (void *)from, size), 0; }
DRIVER(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t size, void *) { return memcpy((void *)to, (void *)from, size), 0; }
DRIVER(cuMemsetD8Async, uint64_t to, unsigned char value, size_t size, void *) { return memset((void *)to, value, size), 0; }
DRIVER(cuPointerGetAttribute, void *value, int which, uint64_t address) {
    if (!is_ours(address)) return 1; // which compute-sanitizer reports
    return *(int *)value = which == 2 ? 2 : 0, 0;
}
DRIVER(cuPointerGetAttributes, unsigned count, int *which, void **values, uint64_t address) {
    for (unsigned i = 0; i < count; i++) *(int *)values[i] = which[i] == 2 && is_ours(address) ? 2 : which[i] == 9 && !is_ours(address) ? -2 : 0;
    return 0;
}

DRIVER(cuLibraryLoadData, void **library, const void *code, void *, void *, unsigned, void *, void *, unsigned) {
    return *library = context, memcmp(code, "\177ELF", 4) ? 200 : 0;
}
DRIVER(cuLibraryUnload, void *) { return 0; }
DRIVER(cuLibraryGetKernel, void **kernel, void *, const char *name) { return *kernel = strdup(name), 0; }
DRIVER(cuKernelSetAttribute, int which, int value, void *kernel, int) {
    printf("%s may have attribute %d = %d\n", (char *)kernel, which, value);
    return value > 232448;
}
DRIVER(cuLaunchKernel, void *kernel, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void *stream,
       uint64_t **arguments, void **extra) {
    const char *where = capturing[number(stream)] ? "captured" : "launched";
    printf("%s %s (%u, %u, %u) (%u, %u, %u) %u", where, (char *)kernel, x, y, z, tx, ty, tz, shared);
    printf(" with %s, %s, %llu\n", is_ours(*arguments[0]) ? "memory" : "?", *arguments[1] == 0x3a9 ? "a map" : "?", (unsigned long long)*arguments[2]);
    return extra != nullptr;
}

DRIVER(cuStreamBeginCapture_v2, void *stream, int) { return capturing[number(stream)] = true, 0; }
DRIVER(cuStreamEndCapture, void *stream, void **graph) { return capturing[number(stream)] = false, *graph = context, 0; }
DRIVER(cuStreamIsCapturing, void *stream, int *status) { return *status = capturing[number(stream)], 0; }
DRIVER(cuStreamGetCaptureInfo_v3, void *stream, int *status, unsigned long long *id, void **graph, void *, void *, size_t *count) {
    *status = capturing[number(stream)];
    if (id) *id = 1;
    if (graph) *graph = context;
    if (count) *count = 0;
    return 0;
}
DRIVER(cuGraphInstantiateWithParams, void **made, void *, void *parameters) { return *made = context, memset(parameters, 0, 8), 0; }
DRIVER(cuGraphUpload, void *, void *) { return 0; }
DRIVER(cuGraphLaunch, void *, void *) { return printf("launched a graph\n"), 0; }
DRIVER(cuGraphDestroy, void *) { return 0; }
DRIVER(cuGraphExecDestroy, void *) { return 0; }
DRIVER(cuUserObjectCreate, void **made, void *, void *, unsigned, unsigned) { return *made = context, 0; }
DRIVER(cuUserObjectRelease, void *, unsigned) { return 0; }
DRIVER(cuGraphRetainUserObject, void *, void *, unsigned, unsigned) { return 0; }
DRIVER(cuGraphReleaseUserObject, void *, void *, unsigned) { return 0; }

DRIVER(cuTensorMapEncodeTiled, uint64_t *map, int type, unsigned rank, uint64_t address, const uint64_t *extents, const uint64_t *strides,
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int near, int beyond) {
    if ((uint64_t)map % 64 || address % 16 || rank < 1 || rank > 5) return 1;
    for (unsigned i = 0; i < rank; i++)
        if (extents[i] < 1 || extents[i] > 1ull << 32 || box[i] < 1 || box[i] > 256 || steps[i] != 1) return 1;
    for (unsigned i = 0; i + 1 < rank; i++)
        if (strides[i] % 16 || strides[i] >= 1ull << 40) return 1;
    printf("mapped type %d (%llu, %llu) by %llu in boxes of (%u, %u)", type, (unsigned long long)extents[0], (unsigned long long)extents[1],
           (unsigned long long)strides[0], box[0], box[1]);
    printf(", interleave %d, swizzle %d, promotion %d, beyond %d\n", interleave, swizzle, near, beyond);
    return *map = 0x3a9, 0;
}

static int missing() { return 801; }

DRIVER(cuGetProcAddress_v2, const char *name, void **found, int, uint64_t, int *status) {
    static void *self = dlopen(getenv("DRIVER"), RTLD_LAZY);
    char text[128];
    *found = nullptr;
    for (const char *suffix : {"_v3", "_v2", ""})
        if (!*found) snprintf(text, sizeof text, "%s%s", name, suffix), *found = dlsym(self, text);
    if (!*found) *found = (void *)missing;
    if (status) *status = 0;
    return 0;
}
