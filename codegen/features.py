"""The features of processors that instructions may ask for, by the names LLVM has for them; of graphics processors, their architecture."""

from codegen.cuda.arch import ARCHITECTURES

X86 = (
    *("sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2", "f16c", "fma", "bmi", "bmi2", "gfni"),
    *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vpopcntdq"),
    *("avx512vnni", "avx512bf16", "avx512fp16", "avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert", "avx10.1", "avx10.2"),
    *("amx-tile", "amx-bf16", "amx-fp16", "amx-int8", "amx-fp8", "amx-tf32"),
)
ARM = ("neon", "dotprod", "i8mm", "bf16", "fullfp16", "fp16fml", "sve", "sve2", "sme", "sme2")
WASM = ("simd128", "relaxed-simd")
CUDA = tuple(ARCHITECTURES)
FEATURES = (*X86, *ARM, *WASM)
NAMES = (*(feature.replace("-", "_") for feature in FEATURES), *CUDA)
"""How the language writes them: `amx_bf16` for `amx-bf16`."""
X86_NAMES = frozenset(feature.replace("-", "_") for feature in X86)
