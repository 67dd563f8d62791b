// Fibres: contexts with stacks of their own, that change hands only where they say so.

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace tl_emulator {

const size_t page_bytes = 65536; // at least a page everywhere
const size_t stack_bytes = 4 * page_bytes;

#if defined(__x86_64__) || defined(__aarch64__)

struct Context {
    void* stack_pointer;
};

// Saves what a callee has to keep on the stack of the running fibre, and goes on where the other one did so.
extern "C" __attribute__((visibility("hidden"))) void tl_emulator_change(void** from, void* to);

#if defined(__x86_64__)
#ifdef TL_EMULATOR
__asm__(
    ".text\n"
    ".hidden tl_emulator_change\n"
    ".globl tl_emulator_change\n"
    ".type tl_emulator_change,@function\n"
    "tl_emulator_change:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n");
#endif

TL_ONCE void prepare(Context& context, char* stack_top, void (*entry)()) {
    void** top = (void**)(stack_top - 64); // a multiple of 16, as it is before a call
    *--top = nullptr;                      // where entry would return to: it never does
    *--top = (void*)entry;
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    context.stack_pointer = top;
}
#else
#ifdef TL_EMULATOR
__asm__(
    ".text\n"
    ".hidden tl_emulator_change\n"
    ".globl tl_emulator_change\n"
    ".type tl_emulator_change,%function\n"
    "tl_emulator_change:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n");
#endif

TL_ONCE void prepare(Context& context, char* stack_top, void (*entry)()) {
    void** frame = (void**)(stack_top - 64 - 160);
    memset(frame, 0, 160);
    frame[11] = (void*)entry; // x30
    context.stack_pointer = frame;
}
#endif

TL_ONCE void change(Context& from, Context& to) { tl_emulator_change(&from.stack_pointer, to.stack_pointer); }

#else

struct Context {
    ucontext_t state;
};

TL_ONCE void prepare(Context& context, char* stack_top, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack_top - (stack_bytes - page_bytes);
    context.state.uc_stack.ss_size = stack_bytes - page_bytes;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}

TL_ONCE void change(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

#endif

inline char* stack_area;
inline int stack_count;

// Returns stacks for `count` fibres, each above a page that nobody may touch, or null. They stay until they are given back.
TL_ONCE char* stacks(int count) {
    if (count <= stack_count) return stack_area;
    if (stack_area) munmap(stack_area, stack_count * stack_bytes);
    stack_count = 0;
    void* fresh = mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) return stack_area = nullptr;
    stack_area = (char*)fresh;
    for (int i = 0; i < count; ++i) mprotect(stack_area + i * stack_bytes, page_bytes, PROT_NONE);
    stack_count = count;
    return stack_area;
}

// Gives the stacks back: each is two mappings, of which a process has no more than some ten thousand.
TL_ONCE void release_stacks() {
    if (stack_area) munmap(stack_area, stack_count * stack_bytes);
    stack_area = nullptr;
    stack_count = 0;
}

} // namespace tl_emulator
