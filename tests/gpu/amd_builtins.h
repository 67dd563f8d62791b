// What clang knows without headers when it compiles for AMD's devices, as declarations, so that another compiler can read the text.

typedef float tl_half_of_clang;
#define _Float16 tl_half_of_clang
#define __HIP_MEMORY_SCOPE_AGENT 4

unsigned __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z();
unsigned __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z();
unsigned short __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z();
unsigned __builtin_amdgcn_grid_size_x(), __builtin_amdgcn_grid_size_y(), __builtin_amdgcn_grid_size_z();
unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned add), __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned add);
int __builtin_amdgcn_ds_bpermute(int bytes, int value);
void __builtin_amdgcn_s_barrier(), __builtin_amdgcn_wave_barrier(), __builtin_amdgcn_fence(int order, const char* scope);
bool __hip_atomic_compare_exchange_strong(int* cell, int* expected, int wanted, int success, int failure, int scope);
