"""The back end for processors: kernels become native code of LLVM, models one native call."""
