"""From a PyTorch model to native code, stage by stage."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from tqdm import tqdm

from . import _native
from .errors import CompileError
from .frontend import ImportedProgram, import_program
from .model import Model
from .options import Options
from .pipeline import IMPORT, Stage

_EMIT = "emit"
_LOAD = "load"


def compile(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Options | None = None,
) -> Model:
    """Compiles a model once, for every shape that ``dynamic_shapes`` allows.

    Args:
        model: a module, or what ``torch.export.export`` made of one.
        args: example arguments, as for ``torch.export.export``.
        kwargs: example keyword arguments.
        dynamic_shapes: which dims are dynamic, as for ``torch.export.export``.
        options: see :class:`disc.Options`.

    Raises:
        CompileError: a stage failed; its message has the line of Python and a reproducer.
        UnsupportedOpError: the model uses operations that cannot be lowered; it lists all of them.
    """
    if not isinstance(model, (torch.nn.Module, ExportedProgram)):
        raise TypeError(f"expected a torch.nn.Module or an ExportedProgram, got {type(model).__name__}")
    if options is None:
        options = Options()
    elif not isinstance(options, Options):
        raise TypeError(f"options: expected disc.Options, got {type(options).__name__}")
    return _Compilation(options).run(model, args, kwargs, dynamic_shapes)


class _Bar(tqdm):
    """A progress bar without tqdm's thread, which redraws bars that are not updated."""

    monitor_interval = 0


class _Compilation:
    """One run of the pipeline: the module between stages, and what is kept of each."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pipeline = options.stages
        if options.stop_after is not None:
            self._pipeline = self._pipeline.until(options.stop_after)
        self._texts: dict[str, str] = {}
        self._timings: dict[str, float] = {}
        self._dump = Path(options.dump_ir) if options.dump_ir is not None else None

    def run(
        self,
        model: torch.nn.Module | ExportedProgram,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        dynamic_shapes: Any,
    ) -> Model:
        if self._dump:
            self._dump.mkdir(parents=True, exist_ok=True)
        executable = None
        with self._progress() as step:
            with step(IMPORT):
                program = import_program(model, args, kwargs, dynamic_shapes)
                module = self._parse(program.text)
            for stage in self._pipeline:
                with step(stage.name):
                    self._run_stage(module, stage)
            if self._options.stop_after is None:
                with step(_EMIT):
                    executable = self._emit(module)
                del module
                with step(_LOAD):
                    self._load(executable, program)
        signature = None if isinstance(model, ExportedProgram) else inspect.signature(model.forward)
        return Model(program, self._pipeline, self._texts, executable, self._timings, signature)

    def _parse(self, text: str) -> _native.Module:
        try:
            module = _native.Module.parse(text)
        except _native.PipelineError as error:
            self._fail(IMPORT, error, text, "")
        module.set_host_target(self._options.cpu or "")
        self._keep(IMPORT, module)
        return module

    def _run_stage(self, module: _native.Module, stage: Stage) -> None:
        try:
            module.run(stage.text)
        except _native.PipelineError as error:
            self._fail(stage.name, error, self._last_text(), stage.text)
        # Model.ir makes the last stage's text again: code is long, and seldom looked at.
        if stage is not self._pipeline.stages[-1] or self._options.stop_after is not None or self._dump:
            self._keep(stage.name, module)

    def _keep(self, stage: str, module: _native.Module) -> None:
        text = module.text(locations=True)
        self._texts[stage] = text
        if self._dump:
            (self._dump / f"{len(self._texts) - 1:02}-{stage}.mlir").write_text(module.text())

    def _last_text(self) -> str:
        return next(reversed(self._texts.values()))

    def _emit(self, module: _native.Module) -> _native.Executable:
        dump = self._dump / f"{len(self._texts):02}-{_EMIT}" if self._dump else ""
        try:
            return _native.jit(
                module,
                torch.Tensor,
                threads=self._options.threads or 0,
                profile=self._options.profile,
                opt_level=self._options.opt_level,
                dump_prefix=str(dump),
            )
        except RuntimeError as error:
            last = self._pipeline.stages[-1].text if len(self._pipeline) else ""
            reproducer = self._write_reproducer(_EMIT, self._last_text(), last)
            raise CompileError(_EMIT, str(error), None, reproducer) from None

    def _load(self, executable: _native.Executable, program: ImportedProgram) -> None:
        parameters = [program.parameters[name].detach() for name in executable.info()["parameters"]]
        try:
            executable.init(parameters)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise CompileError(_LOAD, str(error)) from error
        program.release()

    def _fail(self, stage: str, error: _native.PipelineError, text: str, pipeline: str) -> None:
        """Raises a CompileError that says what the diagnostics say."""
        diagnostics = error.diagnostics
        lines = [d[1] if d[0] == "error" else f"{d[0]}: {d[1]}" for d in diagnostics] or [str(error)]
        if error.failed_pass:
            lines.append(f"(pass {error.failed_pass})")
        source = next((f"{file}:{line}" for _, _, file, line, _ in diagnostics if file.endswith(".py")), None)
        raise CompileError(stage, "\n".join(lines), source, self._write_reproducer(stage, text, pipeline)) from None

    def _write_reproducer(self, stage: str, text: str, pipeline: str) -> str:
        """The IR before the stage and the stage's passes, in the form of MLIR's own crash reproducers."""
        folder = self._options.reproducer_dir
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        handle, path = tempfile.mkstemp(prefix=f"disc-{stage}-", suffix=".mlir", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            escaped = pipeline.replace("\\", "\\\\").replace('"', '\\"')
            file.write(
                "\n{-#\n  external_resources: {\n    mlir_reproducer: {\n"
                f'      pipeline: "{escaped or "builtin.module()"}",\n'
                "      disable_threading: true,\n      verify_each: true\n    }\n  }\n#-}\n"
            )
        return path

    @contextlib.contextmanager
    def _progress(self) -> Iterator[Any]:
        """Gives a context manager that times a step and shows it, on a terminal only."""
        wanted = self._options.progress
        shown = sys.stderr.isatty() if wanted is None else wanted
        steps = 1 + len(self._pipeline) + (2 if self._options.stop_after is None else 0)
        bar = _Bar(
            total=steps,
            disable=not shown,
            leave=False,
            bar_format="disc {desc:10} {bar:24} {n_fmt}/{total_fmt} [{elapsed}]",
        )

        @contextlib.contextmanager
        def step(name: str) -> Iterator[None]:
            bar.set_description_str(name)
            start = time.perf_counter()
            yield
            self._timings[name] = time.perf_counter() - start
            bar.update()

        with bar:
            yield step
