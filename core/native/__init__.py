"""Builds the native library: all of seglog's kernels as machine code, in one extension module, ahead of time.

1. `signatures` finds the kernels and reads the types of their parameters.
2. `lowering` makes numba translate them to LLVM's intermediate code, for no particular processor.
3. `objects` optimises that code for one of the `platforms` and writes an object file.
4. `glue` writes the tables of kernels and parameters that `glue.c` checks calls against.
5. `building` links both with Zig's compiler, unless the library is up to date.

Run it with `python -m native`; `hook` runs it when a wheel is built, unless `delivery.library_cache` has kept the
library. `delivery.release` makes all files of a release; `install` is README's first command. None of it is needed or
installed at run time.
"""
