"""Kernels optimized and emitted in one piece, once; numba does both for every helper by itself as well.

A helper is typed and lowered, and its intermediate code kept. The entry that calls it, however far down, takes the code
of all its helpers into its module, and that module alone is optimized, so that the optimizer also sees more at a time:
with arguments by pointer (sim/engine/compile/pointers.py) and one type of integer the fifo loop compiles in 3.6 s
where it took 7.6 to 9, at a load of ten.

This rests on what numba keeps to itself; with a version that it was not tried with, numba goes its own way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite.binding import ModuleRef
from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.untyped_passes import IRProcessing

from sim.engine.compile.door import POINTED
from sim.engine.compile.instructions import INSTRUCTIONS
from sim.engine.compile.line import Line, RowAt
from sim.engine.compile.pointers import go_by_pointer
from topologies.compiler import plain

TRIED = ((0, 68),)
"""Versions of numba."""


NOT_NEEDED = {
    "WithLifting", "InlineClosureLikes", "RewriteSemanticConstants", "GenericRewrites", "RewriteDynamicRaises",
    "MakeFunctionToJitFunction", "InlineInlinables", "FindLiterallyCalls", "LiteralUnroll",
    "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites", "NoPythonSupportedFeatureValidation",
    "IRLegalization", "DumpParforDiagnostics",
}
"""Passes for what no kernel has: contexts, closures, exceptions, generators, expressions of whole arrays, and counts of
references."""


class _Nowhere:
    """Stands for the code generator where numba would give a helper its environment."""

    def set_env(self, name: str, environment: Any) -> None:
        """No code could use it."""


class _Part(JITCodeLibrary):
    """The code of a helper, as it was lowered."""

    codegen = _Nowhere()

    def add_llvm_module(self, module: ModuleRef) -> None:
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0


class _Whole(JITCodeLibrary):
    """An entry with all helpers."""

    def add_llvm_module(self, module: ModuleRef) -> None:
        self._final_module.link_in(module)

    def finalize(self) -> None:
        for library in self._linking_libraries:  # which grows
            if isinstance(library, _Part):
                known = set(self._linking_libraries)
                self._linking_libraries += [one for one in library._linking_libraries if one not in known]
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Once; numba's cheap passes before these find counts of references to leave out, and there are none."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


@register_pass(mutates_CFG=False, analysis_only=False)
class _FlagsAreKnown(FunctionPass):
    """Flags that a helper is given as constants are constants in it: branches not taken are never typed."""

    _name = "flags_are_known"

    def __init__(self) -> None:
        """Numba's base class wants it."""

    def run_pass(self, state: Any) -> bool:
        code, changed = state.func_ir, False
        for block in code.blocks.values():
            for line in block.find_insts(ir.Assign):
                kind = state.args[line.value.index] if isinstance(line.value, ir.Arg) else None
                if isinstance(kind, types.BooleanLiteral):
                    line.value = ir.Const(kind.literal_value, line.loc)
                    code._definitions[line.target.name] = [line.value]
                    changed = True
        return changed


_typed = types.Function.get_call_type
_known: dict[Any, Any] = {}


def _remembered(function: Any, context: Any, given: Any, named: Any) -> Any:
    if all(isinstance(kind, types.Integer | Line | RowAt) for kind in given):
        given = tuple(map(types.unliteral, given))
    key = function, tuple(given), tuple(named.items())
    if key not in _known:
        _known[key] = _typed(function, context, given, named)
    return _known[key]


@contextmanager
def _calls_typed_once() -> Iterator[None]:
    """Numba would try its implementations of `+` one by one wherever a kernel adds: a fifth of its time."""
    before = types.Function.get_call_type
    types.Function.get_call_type = _remembered
    try:
        yield
    finally:
        types.Function.get_call_type = before


def _compiler(library: type[JITCodeLibrary]) -> type[Compiler]:
    class Own(Compiler):
        def _compile_core(self) -> Any:
            with _calls_typed_once():
                return super()._compile_core()

        def __init__(self, typing: Any, target: Any, given: Any, *rest: Any) -> None:
            super().__init__(typing, target, library(target.codegen(), library.__name__), *rest)
            self.state.library.enable_object_caching()

        def define_pipelines(self) -> Any:
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes = [one for one in passes.passes if one[0].__name__ not in NOT_NEEDED]
            passes.add_pass_after(_FlagsAreKnown, IRProcessing)
            passes.finalize()
            return [passes]

    return Own


_PART, _WHOLE = Compiler, Compiler
if numba.version_info.short in TRIED:
    _PART, _WHOLE = _compiler(_Part), _compiler(_Whole)

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Compiled without the interpreter and without reference counts (`_nrt`): a kernel allocates nothing.

Counting references to the arrays in a NamedTuple costs more than all else: 0.25 million chunk-hops per second with it,
2.6 without, 14 with the helpers inlined as well (ring of 256, 16 chunks). fastmath stays off, so that results repeat
everywhere.
"""


def whole(function: Callable[..., Any]) -> Any:
    """A kernel that Python calls."""
    go_by_pointer(POINTED)
    return plain(function, **_FLAGS, pipeline_class=_WHOLE)


def part(function: Callable[..., Any], **flags: bool) -> Any:
    """What it calls."""
    compiled = plain(function, **_FLAGS, **flags, no_cfunc_wrapper=True, pipeline_class=_PART)
    typed = compiled.get_call_template
    compiled.get_call_template = lambda given, named: typed(tuple(map(_one_integer, given)), named)
    return compiled


def _one_integer(kind: Any) -> Any:
    """Numba would type a helper anew for each constant and each width of its numbers."""
    return types.int64 if isinstance(kind, types.IntegerLiteral) or kind in types.signed_domain else kind


def instruction(function: Callable[..., Any]) -> Any:
    """What a part of one instruction is."""
    return INSTRUCTIONS[function.__name__]
