// What kernel text is made of, for g++: blocks run on the CPU, one after the other, every thread of a block as a fibre. `cuda/prelude/cuda.h` says
// what the names mean; here they also watch. A kernel that a GPU might run wrongly on some day ends in a fault that says what is wrong:
//
//     races             two threads touch a cell of shared or global memory, one of them writes, and no barrier orders them. Found from
//                       the accesses themselves (emulator/shadow.h), whatever order the threads run in
//     out of bounds     of a buffer, of a shared array, of an array of the text
//     misaligned        vectors and asynchronous copies
//     never written     what is read of shared memory, of scratch and of results before anybody wrote it
//     divergence        threads that meet in different barriers, or leave while others wait; a shuffle or a product that not all lanes reach
//     deadlock          nobody can go on: who waits where, and what a barrier in shared memory lacks
//     copies, products  touched before they have landed for sure, or still under way when a thread leaves
//     fences            what asynchronous copies and products read of what threads have written without one between
//
// Accesses are watched through the classes that TL_IN, TL_OUT and TL_SHARED_ARRAY stand for. Raw pointers work as well; of these only
// vectors and copies are watched.
//
// The seed of a launch chooses when copies land (seed % 3: as late as legal, at once, at random) and who goes on when a thread waits
// (seed / 3 % 3: the next, the same warp as far as it can, anybody), and orders warps, lanes and blocks; 0 is the natural order.
// With TL_TERMS floats are terms instead of numbers (emulator/terms.h): what they were computed from.
//
// What is not modelled: banks, caches, registers, how long anything takes; memory between blocks but for races.

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

// What the emulator itself does is compiled once, as a text of its own (TL_EMULATOR): kernels have its state and call its functions.
#ifdef TL_EMULATOR
#define TL_ONCE __attribute__((used))
#else
#define TL_ONCE extern inline __attribute__((gnu_inline, noinline, noipa))
#endif
#define TL_ASKED __attribute__((visibility("default"))) // what is called from outside

#define TL_FUNCTION static inline __attribute__((unused))
#define TL_ALIGN(bytes) __attribute__((aligned(bytes)))
#define TL_RESTRICT __restrict
#define TL_UNROLL
#define TL_ROLLED

#define TL_RSQRT_F32(x) (1.0f / sqrtf(x))
#define TL_RSQRT_F64(x) (1.0 / sqrt(x))

#include "types.h"
#include "scalar.h"
#include "emulator/fibres.h"
#include "emulator/block.h"
#ifdef TL_TERMS
#include "emulator/terms.h"
#else
#include "emulator/numbers.h"
#endif
#include "vectors.h"
#include "emulator/clocks.h"
#include "emulator/shadow.h"
#include "emulator/memory.h"
#include "emulator/collectives.h"
#include "emulator/copies.h"
#include "emulator/matrix.h"
#include "emulator/barriers.h"
#include "emulator/bulk.h"
#include "emulator/wgmma.h"
#include "emulator/launch.h"
