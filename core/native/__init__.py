"""Building the native library: every kernel of seglog as machine code, in one extension module, ahead of time.

1. `signatures` finds the kernels and reads the types of their parameters.
2. `lowering` lets numba turn them into LLVM's intermediate code, for no processor in particular.
3. `objects` optimises that code for one of the `platforms` and writes an object file.
4. `glue` writes the table of kernels and parameters that `glue.c` checks calls against.
5. `building` has Zig's compiler link both, and does nothing where the library is there already.

`python -m native` does it by hand, `hook` when a wheel is built. Nothing of this is needed, or installed, at run time.
"""
