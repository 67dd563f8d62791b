"""From loop IR to native code: `emit` prints LLVM IR, `jit` compiles and loads it, `pool` runs parallel loops."""
