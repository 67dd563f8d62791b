// Blurs images in several threads of the program, each with a context of its own whose parallel loops run where the program likes.
#include "blur.h"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

struct Destroy {
    void operator()(blur_context *context) const { blur_destroy(context); }
};

static void checked(int code) {
    if (code) throw std::runtime_error(blur_error_text(code));
}

// Both halves of a parallel loop, the second one in a thread that lives as long.
static void in_halves(void *, void (*body)(void *, int64_t, int64_t, int64_t), void *context, int64_t begin, int64_t end) {
    const int64_t middle = begin + (end - begin) / 2;
    std::thread other([=] { body(context, middle, end, 1); });
    body(context, begin, middle, 0);
    other.join();
}

static double blurred(int64_t height, int64_t width) {
    blur_options options = {};
    options.header = BLUR_INTERFACE;
    options.threads = 2;
    options.parallel_for = in_halves;
    blur_context *made = nullptr;
    checked(blur_create_with(&made, &options));
    std::unique_ptr<blur_context, Destroy> context(made);

    std::vector<float> image(height * width), y((height - 2) * (width - 2));
    for (size_t k = 0; k < image.size(); k++) image[k] = static_cast<float>(k % width);
    blur_inputs inputs = {height, width, image.data()};
    blur_outputs outputs = {y.data()};
    checked(blur_run(context.get(), &inputs, &outputs));
    double sum = 0;
    for (float v : y) sum += v;
    return sum;
}

int main() {
    std::vector<double> sums(4);
    std::vector<std::thread> threads;
    for (size_t k = 0; k < sums.size(); k++) threads.emplace_back([&, k] { sums[k] = blurred(100 + 100 * static_cast<int64_t>(k), 100); });
    for (std::thread &thread : threads) thread.join();
    for (double sum : sums) std::printf("%.0f\n", sum);
    try {
        blur_context *context = nullptr;
        checked(blur_create(&context, 1));
        std::unique_ptr<blur_context, Destroy> kept(context);
        blur_inputs inputs = {-1, 5, nullptr};
        blur_outputs outputs = {nullptr};
        checked(blur_run(context, &inputs, &outputs));
    } catch (const std::runtime_error &refused) {
        std::puts(refused.what());
    }
}
