#pragma once
// QUIRE_INLINE: for every function of a header that files of more than one instruction set include. Nothing is left
// for the linker to choose from.

#define QUIRE_INLINE inline __attribute__((always_inline))
