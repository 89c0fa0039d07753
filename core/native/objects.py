"""Turns lowered kernels into a target's object file, with LLVM's optimiser and code generator."""

from __future__ import annotations

import re

from llvmlite import binding

from native.platforms import CRC32C_HELPER, ENTRY_PREFIX, Target

# The functions that the library may call in the C library. Others would mean an allocation, exception or Python object.
_FROM_LIBC = frozenset({"memmove", "memset"})


# Return values of entries: 0 for a kernel that ran to its end.
_RETURNED = re.compile(r"\bret i32 (\S+)")


def object_file(code: str, target: Target) -> bytes:
    """Returns the object file of lowered `code`. Raises ValueError if a kernel allocates or raises."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = binding.parse_assembly(code)
    module.link_in(binding.parse_assembly(target.crc32c))
    module.get_function(CRC32C_HELPER).linkage = "internal"
    module.triple = target.triple
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.processor, features=target.features, opt=3, reloc="pic", codemodel=target.code_model
    )
    module.data_layout = str(machine.target_data)
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    _check(module)
    return bytes(machine.emit_object(_with_memmove(module)))


def _with_memmove(module: binding.ModuleRef) -> binding.ModuleRef:
    """Replaces memcpy by memmove, after the optimiser has used the knowledge that nothing overlaps.

    The library does not name versions of the C library's functions. On x86-64, glibc binds an unversioned memcpy to the
    one from before 2.14, which uses only SSE2; there is a single version of memmove, which is today's memcpy.
    """
    code = re.sub(r"^declare void @llvm\.memcpy\..*$", "", str(module), flags=re.MULTILINE)
    code = code.replace("@llvm.memcpy.", "@llvm.memmove.")
    if not re.search(r"^declare void @llvm\.memmove\.", code, flags=re.MULTILINE):
        code += "\ndeclare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)\n"
    return binding.parse_assembly(code)


def _check(module: binding.ModuleRef) -> None:
    asked = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    asked |= {g.name for g in module.global_variables if g.is_declaration}
    if asked - _FROM_LIBC:
        raise ValueError(f"kernels neither allocate nor raise, but these are called: {sorted(asked - _FROM_LIBC)}")
    entries = [function for function in module.functions if function.name.startswith(ENTRY_PREFIX)]
    raising = [entry.name for entry in entries if set(_RETURNED.findall(str(entry))) != {"0"}]
    if raising:
        raise ValueError(f"kernels raise no exceptions, but these may: {raising}")
