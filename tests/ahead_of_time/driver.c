/* Calls libraries rightly and wrongly. Arrays end, and others begin, where memory ends: what is read or written beside them ends the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net.h"
#include "open_net.h"
#include "pick.h"
#include "product.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* Memory of so many bytes between two pages that nobody may touch; it ends at the second, or begins behind the first. */
static void *guarded(size_t bytes, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    char *all = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED && !mprotect(all, page, PROT_NONE) && !mprotect(all + page + room, page, PROT_NONE));
    return all + page + (at_end ? room - bytes : 0);
}

static const char *path;
static float expected[8];

static float *image_of(int64_t count, int at_end) {
    float *image = guarded((size_t)count * sizeof(float), at_end);
    for (int64_t k = 0; k < count; k++) image[k] = (float)(k % 17 - 8);
    return image;
}

static void *runs(void *unused) {
    (void)unused;
    net_context *context;
    CHECK(!net_create_mapped(&context, 1, path));
    for (int k = 0; k < 20; k++) {
        float label[8];
        net_inputs inputs = {.image = image_of(384, k % 2)};
        net_outputs outputs = {.label = label};
        CHECK(!net_run(context, &inputs, &outputs) && !memcmp(label, expected, sizeof label));
    }
    net_destroy(context);
    return NULL;
}

static void rightly(void) {
    net_context *context;
    CHECK(!net_create_mapped(&context, 2, path));
    for (int at_end = 0; at_end < 2; at_end++) {
        net_inputs inputs = {.image = image_of(384, at_end)};
        net_outputs outputs = {.label = guarded(sizeof expected, at_end)};
        CHECK(!net_run(context, &inputs, &outputs));
        CHECK(at_end == 0 || !memcmp(expected, outputs.label, sizeof expected));
        memcpy(expected, outputs.label, sizeof expected);
    }
    net_destroy(context);
    for (int k = 0; k < 8; k++) printf("%.9g\n", (double)expected[k]);

    pthread_t threads[3];
    for (int k = 0; k < 3; k++) CHECK(!pthread_create(&threads[k], NULL, runs, NULL));
    for (int k = 0; k < 3; k++) CHECK(!pthread_join(threads[k], NULL));
}

static void of_open_sizes(void) {
    open_net_context *context;
    CHECK(!open_net_create(&context, 1));
    for (int64_t batch = 0; batch <= 4; batch++) {
        open_net_inputs inputs = {.batch = batch, .image = image_of(192 * batch, 1)};
        open_net_outputs outputs = {.label = guarded((size_t)batch * 16, 1)};
        int64_t extents[OPEN_NET_EXTENTS];
        CHECK(!open_net_extents(&inputs, extents) && extents[0] == batch && extents[3] == 8 && extents[4] == batch && extents[5] == 4);
        CHECK(!open_net_run(context, &inputs, &outputs));
        for (int64_t k = 0; k < 4 * batch && batch <= 2; k++) CHECK(outputs.label[k] - expected[k] < 1e-4f && expected[k] - outputs.label[k] < 1e-4f);
    }
    float label[16];
    int64_t wrong[] = {5, -1, INT64_MIN, INT64_MAX};
    for (int k = 0; k < 4; k++) {
        open_net_inputs inputs = {.batch = wrong[k], .image = image_of(1, 1)};
        open_net_outputs outputs = {.label = label};
        CHECK(open_net_run(context, &inputs, &outputs) >= OPEN_NET_DETAIL);
        CHECK(open_net_extents(&inputs, NULL) != 0);
    }
    open_net_destroy(context);
}

static int sections;

static void backwards(void *user, void (*body)(void *, int64_t, int64_t, int64_t), void *context, int64_t begin, int64_t end) {
    CHECK(user == &sections);
    for (int64_t k = end - 1; k >= begin; k--) body(context, k, k + 1, k % 2);
    sections++;
}

/* Loops that are wrong in one way each. */
static void wrong(void *user, void (*body)(void *, int64_t, int64_t, int64_t), void *context, int64_t begin, int64_t end) {
    switch (*(int *)user) {
        case 0: break; /* nothing runs, */
        case 1: body(context, begin + 1, end, 0); break; /* or not the first, */
        case 2: /* or one twice in place of another, */
            for (int64_t k = begin; k < end; k++) body(context, k == begin + 1 ? begin : k, (k == begin + 1 ? begin : k) + 1, 0);
            break;
        case 3: body(context, begin, end + 1, 0); break; /* or more than there is, */
        case 4: body(context, begin - 1, end, 0); break;
        case 5: body(context, end, begin, 0); break;
        case 6: body(context, begin, end, 2); break; /* or on a thread with a number too high, */
        case 7: body(context, begin, end, -1); break; /* or too low, */
        case 8: /* or two twice in place of those on both sides of them. */
            for (int64_t k = 0; k < 4; k++) body(context, begin + 1 + k / 2, begin + 2 + k / 2, 0);
            body(context, begin + 4, end, 0);
            break;
    }
}

static void by_a_loop_that_is_wrong(void) {
    int way = 0;
    product_options options = {PRODUCT_INTERFACE, 2, 0, NULL, 0, NULL, wrong, &way};
    product_context *context;
    CHECK(!product_create_with(&context, &options));
    float *a = image_of(4096, 1), *b = image_of(4096, 0), *c = guarded(4096 * sizeof(float), 1);
    product_inputs inputs = {a, b};
    product_outputs outputs = {c};
    for (; way < 9; way++) CHECK(product_run(context, &inputs, &outputs) == PRODUCT_PIECES);
    CHECK(strstr(product_error_text(PRODUCT_PIECES), "parallel_for"));
    product_destroy(context);
}

static void by_a_loop_of_the_caller(void) {
    product_options options = {PRODUCT_INTERFACE, 2, 0, NULL, 0, NULL, backwards, &sections};
    product_context *context;
    CHECK(!product_create_with(&context, &options));
    float *a = image_of(4096, 1), *b = image_of(4096, 0), *c = guarded(4096 * sizeof(float), 1);
    product_inputs inputs = {a, b};
    product_outputs outputs = {c};
    CHECK(!product_run(context, &inputs, &outputs) && sections > 0);
    for (int k = 0; k < 4096; k++) {
        float sum = 0;
        for (int m = 0; m < 64; m++) sum += a[k / 64 * 64 + m] * b[m * 64 + k % 64];
        CHECK(c[k] == sum); /* whole numbers, which floats hold */
    }
    outputs.c = a;
    CHECK(strstr(product_error_text(product_run(context, &inputs, &outputs)), "shares memory"));
    outputs.c = a + 4095;
    CHECK(strstr(product_error_text(product_run(context, &inputs, &outputs)), "shares memory"));
    outputs.c = (float *)(UINTPTR_MAX - 63); /* it would go on at address 0 */
    CHECK(product_run(context, &inputs, &outputs) == PRODUCT_ROOM);
    inputs.b = a; /* inputs may be one array */
    outputs.c = c;
    CHECK(!product_run(context, &inputs, &outputs));
    product_destroy(context);
}

/* A fork has the memory of a context and none of its threads. */
static void in_a_fork(void) {
    product_context *context;
    CHECK(!product_create(&context, 2));
    float *a = image_of(4096, 1), *b = image_of(4096, 0), *c = guarded(4096 * sizeof(float), 1), *d = guarded(4096 * sizeof(float), 1);
    product_inputs inputs = {a, b};
    product_outputs outputs = {c}, again = {d};
    CHECK(!product_run(context, &inputs, &outputs));
    for (int runs = 0; runs < 3; runs += 2) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            for (int k = 0; k < runs; k++) CHECK(!product_run(context, &inputs, &again) && !memcmp(c, d, 4096 * sizeof(float)));
            product_destroy(context);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(!product_run(context, &inputs, &again) && !memcmp(c, d, 4096 * sizeof(float)));
    product_destroy(context);
}

/* More often than a process has keys for data of threads. */
static void opened_again_and_again(const char *library) {
    product_options options = {PRODUCT_INTERFACE, 1, 0, NULL, 0, NULL, NULL, NULL};
    for (int k = 0; k < 1100; k++) {
        void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        CHECK(opened);
        int (*create)(product_context **, const product_options *);
        void (*destroy)(product_context *);
        *(void **)&create = dlsym(opened, "product_create_with");
        *(void **)&destroy = dlsym(opened, "product_destroy");
        product_context *context;
        CHECK(!create(&context, &options));
        destroy(context);
        CHECK(!dlclose(opened));
    }
}

static void of_data(void) {
    pick_context *context;
    CHECK(!pick_create(&context, 1));
    float *x = image_of(5, 1), y[2];
    int64_t wrong[][2] = {{0, 5}, {-1, 0}, {INT64_MIN, 1}, {INT64_MAX, 2}};
    for (int k = 0; k < 4; k++) {
        pick_inputs inputs = {.N = 5, .M = 2, .x = x, .at = wrong[k]};
        pick_outputs outputs = {.y = y};
        CHECK(strstr(pick_error_text(pick_run(context, &inputs, &outputs)), "lies outside"));
    }
    pick_inputs inputs = {.N = 5, .M = 2, .x = x, .at = (int64_t[]){4, 0}};
    pick_outputs outputs = {.y = y};
    CHECK(!pick_run(context, &inputs, &outputs) && y[0] == x[4] && y[1] == x[0]);
    inputs.N = (int64_t)1 << 48;
    inputs.M = 0;
    CHECK(!pick_run(context, &inputs, &outputs));
    pick_destroy(context);
}

static void wrongly(void) {
    net_context *context = (net_context *)&expected, *none = NULL;
    net_options options = {NET_INTERFACE, 1, 0, NULL, 0, path, NULL, NULL};
    CHECK(net_create_with(NULL, &options) == NET_NULL_ARGUMENT && net_create_with(&context, NULL) == NET_NULL_ARGUMENT);
    options.header ^= 1;
    CHECK(net_create_with(&context, &options) == NET_HEADER && context == NULL);
    options.header ^= 1;
    int64_t threads[] = {-1, 3, INT64_MIN, INT64_MAX};
    for (int k = 0; k < 4; k++) CHECK(net_create_mapped(&context, threads[k], path) == NET_THREADS && context == NULL);
    CHECK(net_create_mapped(&context, 1, NULL) == NET_WEIGHTS_MISSING);
    CHECK(net_create_mapped(&context, 1, "/nowhere") == NET_WEIGHTS_MISSING && net_create_mapped(&context, 1, "/") != NET_OK);
    CHECK(net_create_mapped(&context, 1, "/dev/null") == NET_WEIGHTS_CHANGED);
    static _Alignas(64) char zeros[NET_WEIGHTS_BYTES + 64];
    options.weights = zeros;
    options.weights_bytes = NET_WEIGHTS_BYTES;
    CHECK(net_create_with(&context, &options) == NET_WEIGHTS_CHANGED);
    FILE *file = fopen(path, "rb");
    CHECK(file && fread(zeros, 1, NET_WEIGHTS_BYTES, file) == NET_WEIGHTS_BYTES && !fclose(file));
    options.weights_bytes--;
    CHECK(net_create_with(&context, &options) == NET_WEIGHTS_CHANGED);
    options.weights_bytes++;
    options.weights = zeros + 1;
    CHECK(net_create_with(&context, &options) == NET_WEIGHTS_CHANGED);
    options.weights = zeros;
    CHECK(net_create_with(&context, &options) == NET_OK && net_level(context));
    CHECK(net_check_weights(none) == NET_NULL_ARGUMENT && net_check_weights(context) == NET_OK);
    size_t places[] = {8, 4096, NET_WEIGHTS_BYTES / 2, NET_WEIGHTS_BYTES - 1};
    for (int k = 0; k < 4; k++) {
        zeros[places[k]] ^= 4;
        CHECK(net_check_weights(context) == NET_WEIGHTS_CHANGED);
        zeros[places[k]] ^= 4;
    }

    float *image = image_of(384, 1), label[9];
    net_inputs inputs = {image};
    net_outputs outputs = {label};
    CHECK(net_run(none, &inputs, &outputs) == NET_NULL_ARGUMENT && net_run(context, NULL, &outputs) == NET_NULL_ARGUMENT);
    CHECK(net_run(context, &inputs, NULL) == NET_NULL_ARGUMENT);
    CHECK(net_run((net_context *)zeros, &inputs, &outputs) == NET_CONTEXT && net_level((net_context *)zeros) == NULL);
    inputs.image = NULL;
    CHECK(strstr(net_error_text(net_run(context, &inputs, &outputs)), "`image` is NULL"));
    inputs.image = (const float *)((char *)image - 2);
    CHECK(strstr(net_error_text(net_run(context, &inputs, &outputs)), "`image` is not aligned to 4 bytes"));
    inputs.image = image;
    outputs.label = NULL;
    CHECK(strstr(net_error_text(net_run(context, &inputs, &outputs)), "`label` is NULL"));
    outputs.label = label;
    CHECK(!net_run(context, &inputs, &outputs) && !memcmp(label, expected, sizeof expected));
    net_destroy(context);
    net_destroy(NULL);
    net_destroy((net_context *)(zeros + NET_WEIGHTS_BYTES));
    for (int code = -3; code < 1000; code++) CHECK(strlen(net_error_text(code)) > 0);
    CHECK(!strcmp(net_error_text(999), "no result of this library"));
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    path = arguments[1];
    rightly();
    of_open_sizes();
    by_a_loop_of_the_caller();
    by_a_loop_that_is_wrong();
    in_a_fork();
    opened_again_and_again(arguments[2]);
    of_data();
    wrongly();
    return 0;
}
