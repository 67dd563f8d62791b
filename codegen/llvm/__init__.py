"""From loop IR to native code: `emit` prints LLVM IR, `jit` compiles and loads it, `call` makes it callable, `pool` runs parallel loops."""
