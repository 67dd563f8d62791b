"""The functions by which C calls what was compiled, as LLVM IR: they take nothing on trust, and need no compiler to be made.

    i32 NAME_create_with(ptr context, ptr options)     a context: memory, weights, threads; all that is ever allocated
    i32 NAME_run(ptr context, ptr inputs, ptr outputs) one run; each field of `inputs` (sizes, then arrays) and of `outputs` is 8 bytes
    void NAME_destroy(ptr context)
    i32 NAME_extents(ptr sizes, ptr extents)           the extents of all arrays for some sizes
    ptr NAME_error_text(i32 code)                      what a result means
    ptr NAME_level(ptr context)                        the level of instructions that was chosen
    i32 NAME_check_weights(ptr context)                whether all weights are as they were made; where there are any

Each `Level` is the same program compiled for other processors, the best one first: `create` takes the first that the processor can run.
"""
