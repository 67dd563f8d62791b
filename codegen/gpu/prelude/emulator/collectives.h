// What threads are and do together: indices, barriers, shuffles, the status word.

TL_FUNCTION int tl_block_x() { return tl_emulator::block_places[tl_emulator::running->block].x; }
TL_FUNCTION int tl_block_y() { return tl_emulator::block_places[tl_emulator::running->block].y; }
TL_FUNCTION int tl_block_z() { return tl_emulator::block_places[tl_emulator::running->block].z; }
TL_FUNCTION int tl_grid_x() { return tl_emulator::grid_shape.x; }
TL_FUNCTION int tl_grid_y() { return tl_emulator::grid_shape.y; }
TL_FUNCTION int tl_grid_z() { return tl_emulator::grid_shape.z; }
TL_FUNCTION int tl_thread_x() { return tl_emulator::running->place.x; }
TL_FUNCTION int tl_thread_y() { return tl_emulator::running->place.y; }
TL_FUNCTION int tl_thread_z() { return tl_emulator::running->place.z; }
TL_FUNCTION int tl_thread() { return tl_emulator::running->in_block; }
TL_FUNCTION int tl_lane() { return tl_emulator::running->lane; }
TL_FUNCTION int tl_warp() { return tl_emulator::running->in_block / tl_emulator::warp_size; }

namespace tl_emulator {

TL_ONCE void block_barrier(int line) {
    if (!meet(whole_blocks[running->block], "tl_barrier", line)) return;
    if (clocks) share_clocks(running->block * threads_of_block, threads_of_block);
    else ++epoch;
}

TL_ONCE void warp_barrier(int line) {
    int warp = running->warp;
    if (!meet(warps[warp], "tl_warp_barrier", line)) return;
    if (clocks) share_clocks(warp * warp_size, warps[warp].members);
    else ++warp_steps[warp];
}

// The values of the lanes that meet in a shuffle; two sets, since a lane may be at the next one before others have taken theirs.
inline uint64_t shuffled[2][most_threads];

template <class T> static T shuffle_xor(T value, int mask, int width, const char* what, int line) {
    int me = running->number, set = (int)(warps[running->warp].generation & 1), other = me ^ mask;
    if (width < 1 || width > warp_size || (width & (width - 1))) fault("%s of line %d: %d lanes are no part of a warp", what, line, width);
    if (mask < 0 || mask >= width) fault("%s of line %d: a mask of %d leaves the %d lanes", what, line, mask, width);
    if (other >= thread_count) fault("%s of line %d: takes the value of lane %d, which does not exist", what, line, other % warp_size);
    memcpy(&shuffled[set][me], &value, sizeof(T));
    meet(warps[running->warp], what, line);
    memcpy(&value, &shuffled[set][other], sizeof(T));
    return value;
}

// What an operation on one cell as a whole does; it never races with others of its kind.
TL_ONCE void fail(Pointer<tl_i32> status, tl_i32 code) {
    checked(status.region, status.at, 4, 4, "writes");
    if (*status.at == 0) *status.at = code;
}

TL_ONCE bool failed(Pointer<tl_i32> status) {
    checked(status.region, status.at, 4, 4, "reads");
    return *status.at != 0;
}

} // namespace tl_emulator

#define tl_barrier() tl_emulator::block_barrier(__LINE__)
#define tl_warp_barrier() tl_emulator::warp_barrier(__LINE__)
#define tl_shuffle_xor_f32(value, mask, width) tl_emulator::shuffle_xor<tl_f32>(value, mask, width, "tl_shuffle_xor_f32", __LINE__)
#define tl_shuffle_xor_f64(value, mask, width) tl_emulator::shuffle_xor<tl_f64>(value, mask, width, "tl_shuffle_xor_f64", __LINE__)
#define tl_shuffle_xor_i32(value, mask, width) tl_emulator::shuffle_xor<tl_i32>(value, mask, width, "tl_shuffle_xor_i32", __LINE__)
#define tl_shuffle_xor_u32(value, mask, width) tl_emulator::shuffle_xor<tl_u32>(value, mask, width, "tl_shuffle_xor_u32", __LINE__)
#define tl_shuffle_xor_i64(value, mask, width) tl_emulator::shuffle_xor<tl_i64>(value, mask, width, "tl_shuffle_xor_i64", __LINE__)
#define tl_shuffle_xor_u64(value, mask, width) tl_emulator::shuffle_xor<tl_u64>(value, mask, width, "tl_shuffle_xor_u64", __LINE__)
#define tl_fail(status, code) tl_emulator::fail(status, code)
#define tl_failed(status) tl_emulator::failed(status)

// ---------------------------------------------------------------- CUDA C that is not of this vocabulary

// What functions of other origin may say of CUDA: their threads and blocks, and the barrier of a block. Their accesses are not watched.
struct tl_dim3 { unsigned x, y, z; };
#define TL_RAW(parameter) ((parameter).at)
#define __device__
#define __global__
#define __forceinline__ inline
#define threadIdx (tl_dim3{(unsigned)tl_thread_x(), (unsigned)tl_thread_y(), (unsigned)tl_thread_z()})
#define blockIdx (tl_dim3{(unsigned)tl_block_x(), (unsigned)tl_block_y(), (unsigned)tl_block_z()})
#define gridDim (tl_dim3{(unsigned)tl_grid_x(), (unsigned)tl_grid_y(), (unsigned)tl_grid_z()})
#define blockDim                                                                                                                        \
    (tl_dim3{(unsigned)tl_emulator::block_shape.x, (unsigned)tl_emulator::block_shape.y, (unsigned)tl_emulator::block_shape.z})
#define __syncthreads() tl_barrier()
