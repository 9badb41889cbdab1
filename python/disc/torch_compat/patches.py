"""The places in PyTorch where DISC replaces a function, written for the version in ``disc/torch_version.py``.

What a replacement does is in the file of ``disc/frontend`` that applies the patch. The test of this module compares
each place with the installed PyTorch.
"""

from __future__ import annotations

from .patching import CodePatch, ItemPatch, Patch
from .versions import MINOR

_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes:ShapeEnv"
_FAKE = "torch._subclasses.fake_impls"
_PROXY_TENSOR = "torch.fx.experimental.proxy_tensor"
_NON_STRICT = "torch._export.non_strict_utils"

# -- the model's control flow: frontend/rewriting/hooks.py ------------------------------------------------

_CONTROL_FLOW = (
    "Python asks for it where control flow depends on a number: the trace ends and the model is traced again with its"
    " control flow rewritten. Without it the branch or the length of the example is compiled in."
)
TRUTH_OF_CONDITION = Patch("torch:SymBool.__bool__", _CONTROL_FLOW, "(self)")
TRUTH_OF_NUMBER = Patch("torch:SymInt.__bool__", _CONTROL_FLOW, "(self)")
TRUTH_OF_FLOAT = Patch("torch:SymFloat.__bool__", _CONTROL_FLOW, "(self)")
INTEGER_OF_CONDITION = Patch("torch:SymBool.__int__", _CONTROL_FLOW, "(self)")
INDEX = Patch(
    "torch:SymInt.__index__",
    "range() of a dynamic number calls it: the trace ends and the model is traced again with its loops rewritten."
    " Without it the loop is traced step by step, and an error names the fixed size instead of what the loop does.",
    "(self)",
)
INTEGER_OF_NUMBER = Patch(
    "torch:SymInt.__int__",
    "Where PyTorch takes a size for a number, as that of x[:2] where n may be 1, a model is traced again with its code"
    " rewritten. Without it the number is compiled in.",
    "(self)",
)
TEXTS = tuple(
    Patch(
        f"torch:{kind}.{name}",
        "The text of a number that is known at run time only is an error, except in messages. Without it the compiled"
        " model uses the name of a symbol as text.",
        "(self)",
    )
    for kind in ("SymInt", "SymFloat")
    for name in ("__str__", "__repr__")
)
COMPARISONS = {
    name: Patch(
        f"torch:SymInt.__{name}__",
        "Comparisons that torch.export answers by assuming that sizes are not 0 or 1 give a condition that is known at"
        " run time. Without it such a branch is compiled for the example's side.",
        "(self, other)",
    )
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
ARITHMETIC = tuple(
    Patch(
        f"torch:{kind}.__{side}{name}__",
        "Conditions count as 1 and 0 in arithmetic, as in Python. Without it PyTorch fixes the condition to the"
        " example's.",
        "(self, other)",
    )
    for kind in ("SymBool", "SymInt", "SymFloat")
    for name in ("add", "sub", "mul")
    for side in ("", "r")
)
COMPUTED_NUMBERS = tuple(
    Patch(
        f"torch:SymInt.__{name}__",
        "Powers and shifts by a dynamic number, and exclusive or, are computed at run time: a size has no expression"
        " for them. Without it PyTorch fixes the number, or refuses the operation.",
        "(self, other)",
    )
    for name in ("rpow", "lshift", "rlshift", "xor", "rxor")
)
CHECK = Patch(
    "torch:_check_with",
    "Conditions of torch._check on data, or that torch.export assumes, are checked at run time. Without it they are"
    " dropped, or refused.",
    "(error_type, cond, message)",
)

SIZE_MEMO = Patch(
    "torch._subclasses.fake_tensor:SymNumberMemoDescriptor.__set__",
    "frontend/facts.py: fake tensors remember how many elements nonzero() and unique() have found. What code in a side"
    " of a branch has found is forgotten at its end. Without it other code refers to sizes that only the side knows.",
    "(self, obj, value)",
)

# -- the model's attributes: frontend/attributes.py -------------------------------------------------------

ATTRIBUTES = Patch(
    "torch.export._trace:_detect_attribute_assignment",
    "Runs around the model's call and puts its attributes back. Before that, those that the call changes are noted."
    " Without it a model that counts its calls in an attribute compiles without notice, and does not count.",
    "(mod)",
)

BUFFER_ASSIGNMENTS = Patch(
    "torch.export._trace:register_buffer_assignment_hook",
    "frontend/replaced_buffers.py: buffers that a call replaces are updates at its end. PyTorch's own hook knows those"
    " of the outermost module alone, and those that a side of a branch sets which is left.",
    "(mod, assigned_buffers)",
)

_REAL = (
    "frontend/state_tensors.py: PyTorch runs operations on real tensors that it meets in a trace, such as attributes"
    " that are not registered as buffers, as constants. Without it tracing `self.h += 1` changes the model's tensor."
)
NUMBERS_AS_TENSORS = Patch("torch._subclasses.fake_tensor:should_allow_numbers_as_tensors", _REAL, "(func)")
CONSTANT_OPERANDS = Patch(f"{_PROXY_TENSOR}:_fetch_proxies_and_all_constant_flag", _REAL, "(flat_args_kwargs, tracer)")

UNUSED_CONSTANT = Patch(
    "torch._export.passes.lift_constants_pass:_unused_constant",
    "frontend/state_tensors.py: constants that nothing reads. Without it torch.export fails with StopIteration where"
    " the model only detaches an attribute.",
    "(node)",
)

# -- symbols and their ranges -----------------------------------------------------------------------------

CREATE_SYMBOL = Patch(
    f"{_SHAPE_ENV}.create_symbol",
    "frontend/proving.py: notes the user's range of a dim, from which 0 and 1 are missing in torch's own."
    " Without it conditions are not proved by trying all sizes, and an empty input is not served.",
    "(self, val, source, dynamic_dim, constraint_dim, positive, do_not_specialize_zero_one, symbolic_context)",
)
MAKE_SYMBOL = Patch(
    "torch.fx.experimental.symbolic_shapes:make_symbol",
    "frontend/proving.py: the symbol of a dim that may be 0 is not positive. Without it `max(n, 1)` is n for an empty"
    " input.",
    "(prefix, idx, kwargs)",
)
EVALUATE_STATIC = Patch(
    f"{_SHAPE_ENV}._maybe_evaluate_static",
    "frontend/proving.py: conditions that hold for all sizes in small ranges count as known. Without it torch.export"
    " refuses them.",
    "(self, expr, unbacked_only, compute_hint, size_oblivious, axioms, var_to_range)",
)
EVALUATE_EXPR = Patch(
    f"{_SHAPE_ENV}._evaluate_expr",
    "frontend/proving.py: the example does not answer which of two sizes is larger where PyTorch has an answer for all"
    " sizes, nor what a branch knows otherwise. Without it slices up to the size of another input are wrong, and a"
    " branch that the example does not take may fail in a trace without the assumption that sizes are not 0 or 1.",
    "(self, orig_expr, hint, fx_node, size_oblivious, fallback_value, forcing_spec)",
)
REFINE_RANGES = Patch(
    f"{_SHAPE_ENV}._refine_ranges",
    "frontend/proving.py: the ranges of sizes that depend on data follow from the user's range of a dim, and not from"
    " torch's own, in which 0 and 1 are missing. Without it the compiled model refuses such sizes.",
    "(self, expr)",
)
INSERT_ASSERTIONS = Patch(
    "torch.export._trace:apply_runtime_assertion_pass",
    "frontend/proving.py: conditions that are inserted into the traced graph narrow no ranges: those of a loop's step"
    " or a branch's side hold only there. Without it a loop of no steps is an error.",
    "(gm, graph_signature)",
)
LOG_GUARD = Patch(
    f"{_SHAPE_ENV}._log_guard",
    "frontend/export.py: notes the user's line behind each guard. Without it errors about dims do not name a line, and"
    " sizes that become Python numbers are not noticed.",
    "(self, prefix, g, forcing_spec)",
)
CHECK_FROZEN = Patch(
    f"{_SHAPE_ENV}._check_frozen",
    "frontend/specialisation.py: notes what PyTorch answers by the example's sizes while it decomposes a program."
    " Without it a dynamic dim is fixed silently.",
    "(self, expr, concrete_val)",
)
CREATE_UNBACKED = Patch(
    "torch._library.fake_impl:FakeImplCtx.create_unbacked_symint",
    "frontend/settle.py: sizes that fake kernels of custom operators create may be 0 and 1. Without it the compiled"
    " model is wrong for these sizes.",
    "(self, min, max)",
)
SYMPY_HANDLERS = Patch(
    f"{_PROXY_TENSOR}:_sympy_handlers",
    "frontend/settle.py: products of more than two numbers. torch calls a function of two numbers with all of them,"
    " and fails.",
    "()",
)
ALLOWED_OPERATIONS = Patch(
    "torch._export.verifier:Verifier.allowed_op_types",
    "frontend/settle.py: the verifier accepts the functions of many numbers until they are replaced. Without it"
    " torch.export rejects such programs.",
    "(self)",
)

# -- what differs between minor versions: frontend/older_torch.py -------------------------------------------

_OLDER = range(13)
DEFER_ASSERT = Patch(
    f"{_SHAPE_ENV}.guard_or_defer_runtime_assert",
    "Conditions on floats of the data belong to those floats. Without it PyTorch takes them for conditions on the"
    " inputs, and fails.",
    "(self, orig_expr, msg, fx_node)",
    minors=_OLDER,
)
INDEXING = Patch(
    f"{_NON_STRICT}:_NonStrictTorchFunctionHandler._override",
    "Positions that are tensors are numbers of the data. Without it PyTorch asks for their values, and fails.",
    "(self, func, args, kwargs)",
    minors=_OLDER,
)

# -- questions about layouts: frontend/layout_questions.py --------------------------------------------------

_LAYOUT = (
    "PyTorch asks sizes for strides and memory formats, which the compiled model does not depend on. Without it each"
    " question is a condition on the inputs, such as a batch size other than 1."
)
DESCRIBE_TENSOR = tuple(
    Patch(f"{module}:_extract_tensor_metadata", _LAYOUT, "(result, include_contiguity)")
    for module in ("torch.fx.passes.shape_prop", _PROXY_TENSOR)
)
MEMORY_FORMATS = tuple(
    Patch(f"{module}:suggest_memory_format", _LAYOUT, "(x)")
    for module in (
        "torch._prims_common",
        "torch._meta_registrations",
        "torch._decomp.decompositions",
        "torch._subclasses.fake_tensor",
    )
)
LAYOUT_QUESTIONS = (
    Patch(f"{_FAKE}:_compute_stride", _LAYOUT, "(old_shape, old_stride, new_shape, size_oblivious)"),
    Patch(f"{_FAKE}:is_contiguous", _LAYOUT, "(a, false_if_dde)"),
    Patch("torch._prims_common:is_contiguous", _LAYOUT, "(a, false_if_dde)"),
    Patch("torch._prims_common:check_contiguous_sizes_strides", _LAYOUT, "(sizes, strides, false_if_dde)"),
    Patch("torch._prims_common:_is_non_overlapping_and_dense_or_false", _LAYOUT, "(sizes, strides)"),
    Patch(
        "torch._prims_common:compute_elementwise_output_logical_to_physical_perm",
        _LAYOUT,
        "(tensors, _skip_checks, ambiguity_check)",
    ),
    Patch("torch._meta_registrations:_exec_fft", _LAYOUT, "(out, self, out_sizes, dim, forward)"),
    Patch("torch._meta_registrations:_sort_dims", _LAYOUT, "(self, dim, exclude_last)"),
    Patch("torch:_debug_has_internal_overlap", _LAYOUT, None),
)
RESHAPE_OF_KERNELS = Patch("torch._refs:_reshape_view_helper_core_alg", _LAYOUT, "(a, shape, allow_copy)")
GUARD_OF_CPP = Patch("torch.fx.experimental.sym_node:SymNode.guard_bool", _LAYOUT, "(self, file, line)")
GUARDS_OF_VIEWS = tuple(
    Patch(f"torch.fx.experimental.sym_node:SymNode.{name}", _LAYOUT, "(self, file, line)")
    for name in ("guard_or_false", "guard_or_true")
)
DIVISIONS = tuple(
    Patch(
        f"torch.fx.experimental.sym_node:SymNode.{name}",
        "frontend/layout_questions.py: a quotient by a size that is 0 in the example, on a side of a branch that the"
        " example does not take, has no value in the example. Without it PyTorch raises ZeroDivisionError.",
        "(self, other)",
    )
    for name in ("mod", "int_floordiv", "int_truediv", "float_truediv")
)
GUARD_OF_PYTHON = Patch("torch.fx.experimental.symbolic_shapes:_guard_or", _LAYOUT, "(a, default)")
_CACHE = "torch._subclasses.fake_tensor:FakeTensorMode"
_MADE_TWICE = (
    "frontend/cached_results.py: PyTorch makes each result twice before it remembers its shape. Without it"
    " tracing takes longer."
)
REMEMBERED_RESULT = Patch(
    f"{_CACHE}._get_output_info_for_cache_entry",
    _MADE_TWICE,
    "(self, state, key, func, args, kwargs, output)",
    minors=range(13, 100),
)
MADE_RESULT = Patch(
    f"{_CACHE}._output_from_cache_entry", _MADE_TWICE, "(self, state, entry, key, func, args)", minors=range(13, 100)
)
CONVERTED_MODULE = Patch(
    "torch.nn:Module._apply",
    "frontend/module_conversions.py: a module that has the dtype already is not converted. Without it PyTorch fails to"
    " assign the tensors that stand for parameters.",
    "(self, fn, recurse)",
)
FAKE_INPUTS = Patch(
    "torch.export._trace:make_fake_inputs",
    "frontend/equal_dims.py: dims that share a Dim are one size. Without it they are compared when the model's code has"
    " run, which has seen different sizes.",
    "(nn_module, args, kwargs, dynamic_shapes, prefer_deferred_runtime_asserts_over_guards)",
)
SUMS = Patch(
    "torch.fx.experimental.sym_node:_optimized_add",
    "frontend/multiples.py: sizes that are padded to a multiple are products. Without it each test of their chunks is a"
    " condition on the inputs, and imports are slow.",
    "(lhs, rhs, lhs_is_optimized_summation, rhs_is_optimized_summation)",
)
FAKE_KERNELS = ItemPatch(f"{_FAKE}:op_implementations_dict", _LAYOUT, None)
CONVOLUTION_FORMAT = Patch("torch._C:_conv_determine_backend_memory_format", _LAYOUT, None)
CONVERSION = Patch("torch:Tensor.to", _LAYOUT, None)

POOLED_SIZE = Patch(
    "torch._meta_registrations:pooling_output_shape_pad_lr",
    "frontend/meta_kernels.py: it compares sizes in ceil mode. Without it the parity of a dynamic size is fixed.",
    "(inputSize, kernelSize, pad_l, pad_r, stride, dilation, ceil_mode)",
)

# -- what torch.export records ------------------------------------------------------------------------------

STACK_TRACES = Patch(
    "torch.fx.proxy:TracerBase._filter_traceback_frames",
    "frontend/locations.py: nodes keep all of the user's frames. Without it operations outside of functions called"
    " forward have no line in errors, profiles and debuggers.",
    "(self, user_stack_summary)",
)
PRINT = Patch(
    "torch.export._trace:print",
    "frontend/export.py: torch.export prints the graph when it fails. Without it models that are traced twice print to"
    " the user's terminal.",
    None,
    default="builtins:print",
)
CONSTANT_ARGUMENT = Patch(
    f"{_NON_STRICT}:_is_constant_argument",
    "frontend/enum_arguments.py: members of enums are constants, as strings are. Without it torch.export fails for"
    " lack of range constraints.",
    "(t)",
)
SYNC = Patch(
    "torch:_sync",
    "frontend/updates.py: PyTorch makes views again before it records a program. Without it symbols of that run count"
    " as lost, which is an error.",
    "(t)",
)

# -- compiled functions and TorchScript -----------------------------------------------------------------------

SCRIPT_CALL = Patch(
    "torch.jit:ScriptFunction.__call__",
    "frontend/scripted.py: functions of torch.jit.script run the Python that they were made of. Without it they cannot"
    " be traced.",
    None,
)
COMPILE_CALLBACK = Patch(
    "torch._dynamo.eval_frame:_callback_from_stance",
    "frontend/scripted.py: functions of torch.compile run their Python. Without it they are compiled while they are"
    " traced. torch.compiler.set_stance would change this in all threads.",
    "(callback)",
)
OPERATOR_CALL = Patch(
    "torch._ops:OpOverloadPacket.__call__",
    "frontend/script_operators.py: TorchScript's operators take and give symbolic numbers. Without it scripted models"
    " fix their dynamic sizes.",
    "(self, args, kwargs)",
)

# -- recurrent layers: frontend/recurrent.py --------------------------------------------------------------------

_RECURRENT = "A recurrent layer is one operator with a dynamic length. Without it torch.export unrolls the layer."
RECURRENT_LAYERS = {
    name: Patch(f"torch._VF:{name}", _RECURRENT, None) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}
HIDDEN_SIZE = Patch(
    "torch.nn.modules.rnn:RNNBase.get_expected_hidden_size",
    "It makes a Python number of the batch size, which fixes it.",
    "(self, input, batch_sizes)",
)
CELL_SIZE = Patch("torch.nn.modules.rnn:LSTM.get_expected_cell_size", HIDDEN_SIZE.purpose, "(self, input, batch_sizes)")
_PACKED = "Packed sequences are padded ones with their lengths. Without it they cannot be traced."
PACK = CodePatch("torch.nn.utils.rnn:pack_padded_sequence", _PACKED, "(input, lengths, batch_first, enforce_sorted)")
UNPACK = CodePatch(
    "torch.nn.utils.rnn:pad_packed_sequence", _PACKED, "(sequence, batch_first, padding_value, total_length)"
)

# -- operators with functions as arguments: frontend/higher_order.py ----------------------------------------------

_HIGHER_ORDER = (
    "Control flow operators are traced into one flat graph with markers. Without it their bodies are graphs of their"
    " own, for which DISC has no rules."
)
HIGHER_ORDER = {
    name: Patch(f"torch:ops.higher_order.{name}.__class__.__call__", _HIGHER_ORDER, parameters)
    for name, parameters in {
        "cond": "(self, pred, true_fn, false_fn, operands)",
        "while_loop": "(self, cond_fn, body_fn, carried_inputs, additional_inputs"
        + (", mutated_arg_indices)" if MINOR >= 13 else ")"),
        "while_loop_stack_output": "(self, cond_fn, body_fn, carried_inputs, additional_inputs)",
        "scan": "(self, combine_fn, init, xs, additional_inputs)",
        "map_impl": "(self, args, kwargs)",
        "associative_scan": "(self, combine_fn, xs, additional_inputs)",
        "invoke_subgraph": "(self, subgraph, identifier, operands)",
        "flex_attention": "(self, query, key, value, score_mod, block_mask, scale, kernel_options,"
        " score_mod_other_buffers, mask_mod_other_buffers)",
    }.items()
}
COMPILE_BODY = Patch(
    "torch._higher_order_ops.utils:_hop_compile_and_call",
    "Bodies of control flow operators are called directly. Without it Dynamo traces them, which supports less of"
    " Python.",
    "(fn, args, kwargs)",
    minors=range(12, 100),
)
# Torch 2.11 has no such function: the operators call torch.compile, in a context of which the bodies see nothing.
COMPILE = Patch("torch:compile", COMPILE_BODY.purpose, None, minors=range(12))
COMPILE_CONTEXT = Patch(
    "torch._higher_order_ops.utils:setup_compilation_env", COMPILE_BODY.purpose, "()", minors=range(12)
)
ASSOCIATIVE_SCAN = Patch(
    "torch._higher_order_ops.associative_scan:generic_associative_scan",
    "A scan over a dynamic length is a loop. PyTorch's own function recurses until the length is 1, which fixes it.",
    "(operator, leaves, dim, additional_inputs)",
)

# -- transforms of functions and gradients: frontend/function_transforms.py ---------------------------------------

_TRANSFORMS = (
    "What functorch computes is recorded below it, as ATen operations. Without it torch.export records wrapped tensors,"
    " and fails."
)
TRANSFORM_LEVELS = (
    Patch("torch._functorch.eager_transforms:grad_increment_nesting", _TRANSFORMS, "()"),
    Patch("torch._functorch.eager_transforms:jvp_increment_nesting", _TRANSFORMS, "()"),
    Patch("torch._functorch.vmap:vmap_increment_nesting", _TRANSFORMS, "(batch_size, randomness)"),
)
TRANSFORM_GRADIENTS = Patch(
    "torch._functorch.eager_transforms:_autograd_grad",
    _TRANSFORMS,
    "(outputs, inputs, grad_outputs, retain_graph, create_graph)",
)
STANDARD_BASIS = Patch(
    "torch._functorch.eager_transforms:_chunked_standard_basis_for_",
    "Jacobians of dynamic sizes. PyTorch's own function makes Python numbers of the sizes, which fixes them.",
    "(tensors, tensor_numels, chunk_size)",
)
RECORDED_STATE = Patch(
    f"{_PROXY_TENSOR}:PreDispatchTorchFunctionMode.__torch_function__",
    "Changes of the grad mode and of autocast inside of a transform are in effect while it is traced. Without it they"
    " are recorded, too.",
    "(self, func, types, args, kwargs)",
)
MODE_FOR_EXPORT = Patch(
    "torch._export.utils:_maybe_find_pre_dispatch_tf_mode_for_export",
    "functorch asks it whether to record its own calls. Without it they are nodes of the graph.",
    "()",
)
DISPATCH_TRACE = Patch(
    f"{_PROXY_TENSOR}:dispatch_trace",
    "A model that calls torch.autograd.grad is recorded below autograd. Without it the gradients are constants.",
    "(root, tracer, concrete_args)",
)
_GRADIENTS = (
    "Models that call it are traced again with gradients enabled. Without it there are no gradients while they are"
    " traced."
)
MIXED_NUMBER = Patch(
    "torch.fx.experimental.sym_node:SymNode.wrap_int",
    "frontend/stand_ins.py: a number that stands for a size is that size in arithmetic with sizes. Without it C++ code"
    " of PyTorch that uses both fails, or fixes the size.",
    "(self, num)",
)
ATTENTION = Patch(
    "torch.nn.functional:scaled_dot_product_attention",
    "Attention that is differentiated or batched is computed by its definition. Without it PyTorch chooses a kernel"
    " that has neither a batching rule nor second gradients.",
    None,
)
BATCH_NORM = Patch(
    "torch:batch_norm",
    "Batch normalisation by known statistics inside of a transform is arithmetic, and its momentum may be computed."
    " Without it PyTorch runs it once for each element of a batch, and momentum=None cannot be traced.",
    None,
)
LEGACY_VMAP = CodePatch(
    "torch._vmap_internals:_vmap",
    "Batches of gradients (is_grads_batched, vectorize) use torch.func.vmap. Without it they fail for dynamic sizes.",
    "(func, in_dims, out_dims, allow_none_pass_through)",
)
CHUNK_SIZES = CodePatch(
    "torch._functorch.vmap:get_chunk_sizes",
    "An error says that chunks of a dynamic size are not supported. Without it the example's size is fixed.",
    "(total_elems, chunk_size)",
)
CALL_MODULE = Patch(
    "torch.fx._symbolic_trace:Tracer.call_module",
    "A checkpoint ends the second run of its modules by an exception. Without it the tracer takes them for running.",
    "(self, m, forward, args, kwargs)",
)
GRADIENTS = CodePatch(
    "torch.autograd:grad",
    _GRADIENTS,
    "(outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched,"
    " materialize_grads)",
)
DUAL_LEVEL = CodePatch("torch.autograd.forward_ad:enter_dual_level", _GRADIENTS, "()")
BACKWARD = CodePatch(
    "torch.autograd:backward",
    "An error says what to write instead. Without it tensors of the trace remain in the model's .grad.",
    "(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)",
)

# -- jagged nested tensors: frontend/jagged_tracing.py ---------------------------------------------------------------

_JAGGED = "Operations on nested tensors are traced as operations on values and offsets. Without it torch.export fails."
PROXY_DISPATCH = Patch(
    f"{_PROXY_TENSOR}:ProxyTorchDispatchMode.__torch_dispatch__", _JAGGED, "(self, func, types, args, kwargs)"
)
NESTED_INT = Patch(
    "torch._subclasses.fake_tensor:FakeTensorMode.create_symbolic_nested_int", _JAGGED, "(self, nt_tensor_id)"
)
EXTREME_LENGTH = Patch(
    "torch.nested._internal.nested_tensor:_get_sdpa_extreme_seqlen",
    "The longest sequence is a data-dependent number. Without it the example's is compiled in.",
    "(func, tensor)",
)
JAGGED_ATTENTION = Patch(
    "torch.nested._internal.ops:jagged_scaled_dot_product_attention",
    "Attention of nested tensors is that of padded ones. PyTorch's own uses a list of tensors, one for each sequence.",
    "(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)",
)
SQUEEZE = Patch(
    "torch.nested._internal.ops:squeeze_leading_ones",
    "Only dims that are 1 for every size are dropped. Without it a dynamic batch is compared with 1.",
    "(t)",
)
SUGGESTED_FIXES = Patch(
    f"{_NON_STRICT}:_suggest_fixes_for_data_dependent_error_non_strict",
    "It fails for sizes of ragged dims, which hides the error that it should explain.",
    "(e)",
)
IS_FX_TRACING = Patch(
    "torch.fx._symbolic_trace:is_fx_tracing",
    "Code of nested tensors refuses to run under torch.fx, but DISC traces the operations below it.",
    "()",
)

# -- optimizers: frontend/optimizer_update.py ------------------------------------------------------------------------

IS_COMPILING = Patch(
    "torch.compiler:is_compiling",
    "Optimizers compute bias corrections in double while nothing is traced. Without it they compute them in float32.",
    "()",
)
POWER = Patch(
    "torch:SymFloat.__pow__",
    "Numbers may have negative bases, as in Python. Without it such a power is an error at run time.",
    "(self, other)",
)
_PROFILED = "Steps of base classes note the time they take. Without it that becomes an operation of the program."
PROFILED = Patch("torch.autograd.profiler:record_function.__enter__", _PROFILED, "(self)")
PROFILED_END = Patch(
    "torch.autograd.profiler:record_function.__exit__", _PROFILED, "(self, exc_type, exc_value, traceback)"
)


def patches() -> list[Patch]:
    """All of the above that the installed PyTorch needs."""
    found: list[Patch] = []
    for value in globals().values():
        values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        found += [x for x in values if isinstance(x, Patch) and x.is_needed]
    return found


# -- custom gradients: frontend/training/custom_functions.py ------------------------------------------------

FUNCTION_CALLED = Patch(
    "torch.autograd.function:_is_setup_context_defined",
    "Function.apply calls it first, which shows that a model uses a torch.autograd.Function. Without it a training step"
    " differentiates what the function computes instead of calling its backward.",
    "(fn)",
)
TENSOR_HOOK = Patch(
    "torch:Tensor.register_hook",
    "A hook changes a gradient, as a torch.autograd.Function does. Without it training steps ignore hooks.",
    "(self, hook)",
)
CHECKPOINT = Patch(
    "torch.utils.checkpoint:CheckpointFunction.apply",
    "It runs a part of a model under no_grad, and differentiates it later. Without it that part has no gradients in a"
    " training step.",
    "(args, kwargs)",
)
