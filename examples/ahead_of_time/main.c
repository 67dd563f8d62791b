/* Blurs an image of the size that is asked for: main HEIGHT WIDTH. */
#include "blur.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what, int code) {
    fprintf(stderr, "%s: %s\n", what, blur_error_text(code));
    return 1;
}

int main(int count, char **arguments) {
    int64_t height = count > 1 ? atoll(arguments[1]) : 480, width = count > 2 ? atoll(arguments[2]) : 640;
    blur_inputs inputs = {.H = height, .W = width};
    int64_t extents[BLUR_EXTENTS]; /* of image, then of y */
    int code = blur_extents(&inputs, extents);
    if (code) return failed("sizes", code);

    float *image = malloc(sizeof(float) * (size_t)(height * width + 1));
    float *y = malloc(sizeof(float) * (size_t)(extents[2] * extents[3] + 1));
    if (!image || !y) return 1;
    for (int64_t k = 0; k < height * width; k++) image[k] = (float)(k % width);
    inputs.image = image;
    blur_outputs outputs = {.y = y};

    blur_context *context;
    code = blur_create(&context, 0);
    if (code) return failed("create", code);
    code = blur_run(context, &inputs, &outputs);
    if (code) return failed("run", code);
    double sum = 0;
    for (int64_t k = 0; k < extents[2] * extents[3]; k++) sum += y[k];
    printf("%lld x %lld, sum %.0f, %s\n", (long long)extents[2], (long long)extents[3], sum, blur_level(context));
    blur_destroy(context);
    free(image);
    free(y);
    return 0;
}
