"""The installed PyTorch has what disc.torch_compat expects, and only the tracing thread sees what DISC replaces."""

import ast
import builtins
import contextlib
import functools
import importlib
import inspect
import pickle
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import disc
from disc.frontend import import_program
from disc.torch_compat import lasting, patches, quiet
from disc.torch_compat.compiling import ConstantSource
from disc.torch_compat.patching import ItemPatch
from disc.torch_compat.symbols import ShapeEnv
from disc.torch_compat.tracing import disable_proxy_modes_tracing
from disc.torch_compat.versions import MINOR
from disc.torch_version import names

PACKAGE = Path(disc.__file__).parent

# Of each name that a module of torch_compat imports: what it is; of a function, the names of its parameters.
NAMES = {
    "pytree": {
        "torch.utils._pytree.SUPPORTED_NODES": "dict",
        "torch.utils._pytree.GetAttrKey": "class",
        "torch.utils._pytree.MappingKey": "class",
        "torch.utils._pytree.SequenceKey": "class",
        "torch.utils._pytree.TreeSpec": "class",
        "torch.utils._pytree._get_node_type": "(tree)",
        "torch.utils._pytree.keystr": "(kp)",
        "torch.utils._pytree.register_pytree_node": (
            "(cls, flatten_fn, unflatten_fn, serialized_type_name, to_dumpable_context, "
            "from_dumpable_context, flatten_with_keys_fn)"
        ),
        "torch.utils._pytree.tree_flatten": "(tree, is_leaf)",
        "torch.utils._pytree.tree_flatten_with_path": "(tree, is_leaf)",
        "torch.utils._pytree.tree_leaves": "(tree, is_leaf)",
        "torch.utils._pytree.tree_map": "(func, tree, rests, is_leaf)",
        "torch.utils._pytree.tree_map_only": "(type_or_types_or_pred, func, tree, is_leaf)",
        "torch.utils._pytree.tree_map_with_path": "(func, tree, rests, is_leaf)",
        "torch.utils._pytree.tree_unflatten": "(leaves, treespec)",
    },
    "symbols": {
        "torch.export.dynamic_shapes._DimHint": "class",
        "torch.export.dynamic_shapes._DimHintType": "class",
        "torch.export.exported_program._convert_guards_to_code": "(graph_module)",
        "torch.fx.experimental._config": "module",
        "torch.fx.experimental.sym_node.SymNode": "class",
        "torch.fx.experimental.sym_node._NO_HINT": "object",
        "torch.fx.experimental.symbolic_shapes.ConstraintViolationError": "class",
        "torch.fx.experimental.symbolic_shapes.DimDynamic": "class",
        "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode": "class",
        "torch.fx.experimental.symbolic_shapes.RuntimeAssert": "class",
        "torch.fx.experimental.symbolic_shapes.ShapeEnv": "class",
        "torch.fx.experimental.symbolic_shapes.StrictMinMaxConstraint": "class",
        "torch.fx.experimental.symbolic_shapes.free_symbols": "(val)",
        "torch.fx.experimental.symbolic_shapes.free_unbacked_symbols": "(x)",
        "torch.fx.experimental.symbolic_shapes.statically_known_true": "(x)",
        "torch.utils._sympy.functions": "module",
        "torch.utils._sympy.functions.FloorDiv": "class",
        "torch.utils._sympy.functions.Max": "class",
        "torch.utils._sympy.functions.Min": "class",
        "torch.utils._sympy.functions.PythonMod": "class",
        "torch.utils._sympy.interp.sympy_interp": "(analysis, env, expr, index_dtype, missing_handler)",
        "torch.utils._sympy.numbers.int_oo": "IntInfinity",
        "torch.utils._sympy.printers.PythonPrinter": "class",
        "torch.utils._sympy.reference.PythonReferenceAnalysis": "class",
        "torch.utils._sympy.symbol.SymT": "EnumType",
        "torch.utils._sympy.symbol.prefix_str": "dict",
        "torch.utils._sympy.symbol.symbol_is_type": "(sym, prefix)",
        "torch.utils._sympy.solve.try_solve": "(expr, thing, trials, floordiv_inequality)",
        "torch.utils._sympy.value_ranges.ValueRanges": "class",
        "torch.utils._sympy.value_ranges.bound_sympy": "(expr, ranges)",
    },
    "tracing": {
        "torch._C.DisableTorchFunction": "class",
        "torch._C._disabled_torch_function_impl": "builtin",
        "torch._dispatch.python.enable_python_dispatcher": "class",
        "torch._functorch._aot_autograd.functional_utils.from_fun": "(t)",
        "torch._functorch._aot_autograd.functional_utils.to_fun": "(t)",
        "torch._guards.detect_fake_mode": "(inputs)",
        "torch._higher_order_ops.effects._EffectType": "class",
        "torch._subclasses.fake_tensor.DataDependentOutputException": "class",
        "torch._subclasses.fake_tensor.FakeTensor": "class",
        "torch._subclasses.fake_tensor.FakeTensorMode": "class",
        "torch._subclasses.fake_tensor.UnsupportedOperatorException": "class",
        "torch._subclasses.fake_tensor.unset_fake_temporarily": "()",
        "torch._subclasses.functional_tensor.FunctionalTensorMode": "class",
        "torch.fx.experimental.proxy_tensor": "module",
        "torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing": "()",
        "torch.fx.experimental.proxy_tensor.get_proxy_mode": "()",
        "torch.fx.experimental.proxy_tensor.get_proxy_slot": "(obj, tracer, default, transform)",
        "torch.fx.experimental.proxy_tensor.make_fx": (
            "(f, decomposition_table, tracing_mode, _allow_non_fake_inputs, pre_dispatch, "
            "record_module_stack, _allow_fake_constant, _error_on_data_dependent_ops, record_stack_traces, "
            "proxy_module_inputs, _disable_torch_fn_metadata_mode)"
        ),
        "torch.fx.experimental.proxy_tensor.maybe_enable_thunkify": "()",
        "torch.fx.passes.shape_prop._extract_tensor_metadata": "(result, include_contiguity)",
        "torch.utils._python_dispatch._disable_current_modes": "()",
    },
    "optimizers": {
        "torch.optim.optimizer._global_optimizer_post_hooks": "OrderedDict",
        "torch.optim.optimizer._global_optimizer_pre_hooks": "OrderedDict",
    },
    "operators": {
        "torch._C.DispatchKey": "class",
        "torch._C._dispatch_get_all_op_names": "builtin",
        "torch._C._dispatch_has_kernel_for_dispatch_key": "builtin",
        "torch._decomp.core_aten_decompositions": "()",
        "torch._decomp.decomposition_table": "dict",
        "torch._higher_order_ops.flex_attention.math_attention": (
            "(query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_other_buffers, "
            "mask_mod_other_buffers)"
        ),
        "torch._meta_registrations.meta_convolution_backward": (
            "(grad_output_, input_, weight_, bias_sizes_opt, stride, padding, dilation, transposed, "
            "output_padding, groups, output_mask)"
        ),
        "torch._ops.HigherOrderOperator": "class",
        "torch._ops.OperatorBase": "class",
        "torch._ops.OpOverload": "class",
        "torch._ops.OpOverloadPacket": "class",
        "torch._prims_common.suggest_memory_format": "(x)",
        "torch._refs._broadcast_shapes": "(_shapes)",
        "torch._C._nn.pad_sequence": "builtin",
        "torch._refs.istft": "(input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, "
        "return_complex)",
        "torch.export.exported_program._override_composite_implicit_decomp": "(cia_ops_to_callable)",
        "torch.export.exported_program._split_decomp_table_to_cia_and_python_decomp": "(decomp_table)",
    },
    "compiling": {
        "torch._dynamo.backends.common.aot_autograd": "(kwargs)",
        "torch._dynamo.backends.registry.list_backends": "(exclude_tags)",
        "torch._dynamo.backends.registry.register_backend": "(compiler_fn, name, tags)",
        "torch._dynamo.exc.RestartAnalysis": "class",
        "torch._dynamo.exc.TorchDynamoException": "class",
        "torch._dynamo.source.ConstantSource": "class",
        "torch._dynamo.source.TensorPropertySource": "class",
        "torch._functorch._aot_autograd.schemas.OutputType": "class",
        "torch._functorch.aot_autograd.make_boxed_func": "(f)",
        "torch._guards.TracingContext": "class",
        "torch._inductor.config": "module",
        "torch._prims.rng_prims.run_and_save_rng_state": "(op, args, kwargs)",
        "torch._prims.rng_prims.run_with_rng_state": "(rng_state, op, args, kwargs)",
    },
    "nested": {
        "torch.fx._symbolic_trace": "module",
        "torch.nested._internal.nested_tensor": "module",
        "torch.nested._internal.ops": "module",
        "torch.nested._internal.sdpa": "module",
        "torch.nested._internal.nested_int.NestedIntNode": "class",
        "torch.nested._internal.nested_tensor.NestedTensor": "class",
    },
    "tensors": {
        "torch._C.TensorBase": "class",
        "torch._C._functorch": "module",
        "torch._C._WeakTensorRef": "class",
        "torch.autograd._unsafe_preserve_version_counter": "class",
        "torch.nn.modules.module._IncompatibleKeys": "class",
    },
    "scripts": {
        "torch._VF": "module",
        "torch._C.ScriptMethod": "class",
        "torch._C._create_function_from_graph": "builtin",
        "torch._C._jit_pass_inline": "builtin",
        "torch._C._jit_resolve_packet": "builtin",
    },
    "saving": {
        "torch._export.serde.serialize.GraphModuleSerializer": "class",
    },
}


# Attributes of PyTorch's objects that the front end reads or sets.
class Plain(torch.optim.SGD):
    """An optimizer."""

    def __init__(self):
        super().__init__([torch.zeros(1)], lr=1.0)


ATTRIBUTES = {
    "frontend/facts.py": (
        ShapeEnv,
        "var_to_range replacements axioms deferred_runtime_asserts guards get_implications simplify _version_counter"
        " _resimplify_floor_div_axioms _inner_evaluate_expr",
    ),
    "frontend/hints.py": (ShapeEnv, "var_to_sources backed_var_to_val var_to_range replace"),
    "frontend/layout_questions.py": (ShapeEnv, "suppress_guards"),
    "frontend/optimizer_program.py": (
        ShapeEnv,
        "create_unbacked_symint create_unbacked_symfloat create_unbacked_symbool ignore_fresh_unbacked_symbols"
        " guard_or_defer_runtime_assert",
    ),
    "frontend/optimizers.py": (Plain, "_optimizer_step_pre_hooks _optimizer_step_post_hooks"),
    "frontend/rewriting/graph.py": (ShapeEnv, "ignore_fresh_unbacked_symbols is_unbacked_symint"),
    "frontend/settle.py": (ShapeEnv, "create_symintnode create_symfloatnode create_symboolnode"),
    "frontend/specialisation.py": (ShapeEnv, "_suppress_guards_tls"),
}


def parameters(function):
    """The names of a function's parameters; None for functions that have no signature."""
    try:
        return f"({', '.join(inspect.signature(function).parameters)})"
    except (TypeError, ValueError):
        return None


@functools.cache
def imports():
    """For each module of torch_compat and each name: the files of DISC that import it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if "torch_compat." in module or path.parent.name == "torch_compat":
                for alias in node.names if module else ():
                    key = module.rpartition(".")[2], alias.name
                    found.setdefault(key, []).append(path.relative_to(PACKAGE).as_posix())
    return found


def users(module, name):
    """The files of DISC that import a name from a module of torch_compat."""
    return imports().get((module, name), [])


@pytest.mark.parametrize("patch", [*patches.patches(), *lasting.LASTING], ids=lambda patch: patch.place)
def test_place(patch):
    needed = f"{patch.place} of torch {torch.__version__} (DISC is for {names()}) is needed: {patch.purpose}"
    try:
        found = patch.items() if isinstance(patch, ItemPatch) else patch.original()
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{needed}\n{error}")
    if patch.parameters is not None:
        assert parameters(found) == patch.parameters, needed
    elif patch in lasting.LASTING:
        assert isinstance(found, dict) or callable(found) or inspect.isdatadescriptor(found), needed
    else:
        assert isinstance(found, dict) or callable(found), needed
    assert len(patch.purpose) > 40


def test_places_are_different():
    places = [patch.place for patch in (*patches.patches(), *lasting.LASTING)]
    assert len(places) == len(set(places))


def imported(module):
    """What a module of torch_compat imports: pairs of the place and the name under which it is used."""
    for node in ast.parse((PACKAGE / "torch_compat" / f"{module}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from ((node.module, alias.name, alias.asname) for alias in node.names)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in NAMES for name in NAMES[module]])
def test_name(module, name):
    used = {f"{place}.{private}": public for place, private, public in imported(module)}
    expected = NAMES[module][name]
    needed = f"{name} of torch {torch.__version__} (DISC is for {names()}) is used by {users(module, used[name])}"
    owner, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(owner)
        found = getattr(found, attribute) if hasattr(found, attribute) else importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{needed}\n{error}")
    if expected == "class":
        assert inspect.isclass(found), needed
    elif expected == "module":
        assert inspect.ismodule(found), needed
    elif expected == "builtin":
        assert callable(found), needed
    elif expected.startswith("("):
        assert parameters(found) == expected, needed
    else:
        assert type(found).__name__ == expected, needed


@pytest.mark.parametrize("module", NAMES)
def test_names_are_listed_and_used(module):
    found = list(imported(module))
    assert {f"{place}.{private}" for place, private, _ in found} == NAMES[module].keys()
    if module != "pytree":  # It is imported as a whole.
        assert not [public for _, _, public in found if not users(module, public)]


@pytest.mark.parametrize("file", ATTRIBUTES)
def test_attributes(file):
    kind, names = ATTRIBUTES[file]
    missing = [name for name in names.split() if not hasattr(kind(), name)]
    assert not missing, f"{file} needs {kind.__name__}.{missing} of torch {torch.__version__}"


def test_only_torch_compat_replaces_functions():
    """No other file of DISC assigns to an attribute of PyTorch or of builtins, or uses unittest.mock."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "torch_compat":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in [x for t in targets for x in getattr(t, "elts", [t]) if isinstance(x, ast.Attribute)]:
                owner = ast.unparse(target).split(".")[0]
                if owner in ("torch", "builtins", "ShapeEnv") or target.attr == "__code__":
                    found.append(f"{path}:{node.lineno}: {ast.unparse(target)}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest"):
                found.append(f"{path}:{node.lineno}: {node.module}")
    assert not found


# -- threads ----------------------------------------------------------------------------------------------


def elsewhere(function):
    """The result of a function in another thread."""
    result = []

    def run():
        try:
            result.append((function(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


class Calling(torch.nn.Module):
    """Calls a function while it is traced."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        self.function()
        return self.layer(x).relu() + x.shape[0]


def traced(function):
    """The result of a function that a model calls while DISC traces it."""
    results = []
    model = Calling(lambda: results.append(function())).eval()
    import_program(model, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", min=1, max=64)},))
    return results[0]


def snapshot():
    """All places, with what is in them now."""
    found = [(patch.place, patch.find().stored()) for patch in patches.patches() if not isinstance(patch, ItemPatch)]
    tables = [(patch.place, dict(patch.items())) for patch in patches.patches() if isinstance(patch, ItemPatch)]
    return found, tables, list(warnings.filters), list(quiet.FAILING_OPERATORS._logger.filters)


def symbol():
    """A size of a program that this thread traces by itself."""
    env = ShapeEnv()
    source = ConstantSource("size")
    return env.create_symintnode(env.create_symbol(5, source), hint=5, source=source), env


def numbers():
    """What Python's operators do with symbolic numbers, and which conditions they leave."""
    # PyTorch's mode that records symbolic numbers is one for all threads.
    with disable_proxy_modes_tracing():
        return compared_numbers()


def compared_numbers():
    n, env = symbol()
    unbacked = env.create_unbacked_symint()
    condition = n > 3
    results = [bool(n), bool(condition), int(condition), n.__index__(), [*range(n)], str(n), repr(n), str(unbacked)]
    results += [int(n + condition), int(condition * 2), n == 5, n != 5]
    return [str(result) for result in results], [str(guard.expr) for guard in env.guards]


def check():
    """torch._check of a condition that does not hold."""
    with pytest.raises(RuntimeError, match="said so") as info:
        torch._check(False, lambda: "said so")
    return str(info.value)


class Packed(torch.nn.Module):
    """A recurrent layer over packed sequences."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        assert packed.sorted_indices is not None
        y, _ = self.layer(packed)
        assert y.batch_sizes.shape[0] == int(lengths.max())
        return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]


def eager():
    """Recurrent layers in eager mode."""
    torch.manual_seed(3)
    model = Packed().eval()
    return model(torch.ones(2, 3, 4), torch.tensor([2, 3])).tolist()


def script():
    """A function of TorchScript, and operators of numbers."""

    @torch.jit.script
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return twice(torch.ones(2)).tolist(), torch.ops.aten.add(2, 3), str(twice.graph).count("aten::mul")


def dynamo():
    """What Dynamo asks before it compiles. torch.export itself disables torch.compile in all threads."""
    return importlib.import_module("torch._dynamo.eval_frame")._callback_from_stance(compile)


def python():
    """Python's own range."""
    return builtins.range is type(range(3)), pickle.loads(pickle.dumps(range(3))), isinstance(range(2), range)


# Not torch.export: of two threads that use it at the same time one fails, also without DISC.
PROBES = [numbers, check, eager, script, dynamo, python]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_other_threads_are_not_affected(probe):
    alone = elsewhere(probe)
    assert traced(lambda: elsewhere(probe)) == alone
    assert elsewhere(probe) == alone


def test_the_tracing_thread_is_affected():
    """The test of what other threads see is worth something."""
    before = snapshot()[0]
    same = traced(lambda: [place for (place, old), (_, new) in zip(before, snapshot()[0], strict=True) if old is new])
    only_graphs = {patches.HIGHER_ORDER[name].place for name in ("invoke_subgraph", "flex_attention")}
    decomposing = {patches.CHECK_FROZEN.place, patches.SYNC.place}
    # PyTorch 2.12 converts results of other kernels, too.
    kernels = {patches.CONVOLUTION_FORMAT.place, *([patches.CONVERSION.place] if MINOR >= 13 else [])}
    optimizers = {p.place for p in (patches.IS_COMPILING, patches.POWER, patches.PROFILED, patches.PROFILED_END)}
    training = {p.place for p in (patches.FUNCTION_CALLED, patches.TENSOR_HOOK, patches.CHECKPOINT)}
    assert set(same) == only_graphs | decomposing | kernels | optimizers | training


class Failure(Exception):
    """An error of a model's own."""


@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt, SystemExit, None])
def test_all_is_restored(error):
    before = snapshot()

    def fail():
        if error is not None:
            raise error("in the middle of a trace")

    with pytest.raises((error, disc.CompileError)) if error is not None else contextlib.nullcontext():
        traced(fail)
    after = snapshot()
    for old, new in zip(before[0], after[0], strict=True):
        assert old[1] is new[1], old[0]
    assert before[1:] == after[1:]


def test_an_interrupt_while_the_control_flow_is_rewritten():
    before = snapshot()
    traces = []

    class Model(torch.nn.Module):
        def forward(self, x):
            y = x + 1 if x.sum() > 0 else x - 1
            traces.append(type(y))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_program(Model(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n")},))
    assert traces
    after = snapshot()
    assert [old is new for (_, old), (_, new) in zip(before[0], after[0], strict=True)] == [True] * len(before[0])
    assert before[1:] == after[1:]


def test_two_threads_trace():
    """Programs that need the replacements, traced in turns: torch.export has state of the whole process."""

    class Loop(torch.nn.Module):
        def forward(self, x):
            y = x[0]
            for t in range(x.shape[0]):
                y = torch.tanh(y + x[t])
            return y

    def texts(count):
        found = []
        for _ in range(count):
            program = import_program(Loop(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", min=1, max=64)},))
            found.append(program.text)
        return found

    before = snapshot()
    expected = texts(1)
    results = [[], []]
    threads = [threading.Thread(target=lambda k=k: results[k].extend(texts(2))) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected * 2] * 2
    assert snapshot()[2:] == before[2:]


def test_the_tracing_thread_prints_nothing_and_others_do(capsys):
    """torch.export prints the graph when it fails."""
    module = importlib.import_module("torch.export._trace")
    traced(lambda: (print("by the model"), module.print("by torch"), elsewhere(lambda: module.print("elsewhere"))))
    assert capsys.readouterr().out == "by the model\nelsewhere\n"


def test_import_needs_no_torch():
    """The package itself imports nothing."""
    tree = ast.parse((PACKAGE / "torch_compat" / "__init__.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
