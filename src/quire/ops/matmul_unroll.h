#pragma once
// QUIRE_UNROLL before a loop of at most 16 steps: copies of the body, so that its arrays live in registers.

#ifdef __clang__
#define QUIRE_UNROLL _Pragma("unroll")
#else
#define QUIRE_UNROLL _Pragma("GCC unroll 16")
#endif
