"""One run of the pipeline over a model: what compiling for this process and ahead of time have in common."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from . import _native
from .backends.code import Builder
from .backends.negotiation import Negotiation
from .backends.registry import resolve
from .errors import ArgumentValueError, CompileError, boundary
from .frontend import ImportedProgram, import_program
from .frontend.examples import Examples
from .frontend.input_check import check_interface
from .frontend.training.step import TrainingProgram
from .garbage import rare_collections
from .interrupts import deferred_interrupts
from .logs import log
from .options import Options
from .pipeline import IMPORT, PARTITION, Stage
from .targets import find
from .timeline import Timeline
from .viewers import torch_trace

EMIT = "emit"
LOAD = "load"


def is_onnx(model: Any) -> bool:
    """Whether ``model`` is the name of an ONNX file or a ModelProto; answers without the onnx package."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model).endswith(".onnx")
    return type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx")


_MOST_LINES = 4
"""A diagnostic of more lines has IR in it."""


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= _MOST_LINES else f"{lines[0][:200]} ... (the rest is in the reproducer)"


class _Bar(tqdm):
    """A progress bar without tqdm's thread, which redraws bars that are not updated."""

    monitor_interval = 0


class Compilation:
    """The stages of one compilation: their timings, texts, dumps and reproducers."""

    def __init__(self, options: Options, name: str = "model", *, library: bool = False) -> None:
        """``name`` is that of the model, for traces. ``library``: the code is not for this process."""
        self.options = options
        self.name = name
        self.pipeline = options.stages
        backends = resolve(options.backends)
        on_device = bool(find(options.target or "cpu").target.tensors)
        self.negotiation = Negotiation(backends, on_device) if backends else None
        """What back ends of others said, if there are any."""
        self._is_library = library
        if self.negotiation is not None:
            self.pipeline = self.pipeline.with_backends(self.negotiation.names, self.negotiation.merging)
        if options.stop_after is not None:
            self.pipeline = self.pipeline.until(options.stop_after)
        self.texts: dict[str, str] = {}
        """The IR after each stage that is kept."""
        self.timings: dict[str, float] = {}
        """Seconds of each step."""
        self.interface: dict[str, Any] | None = None
        """The inputs, outputs and symbols, as the memory stage leaves them."""
        self.timeline = Timeline()
        """When each step ran."""
        self.program: ImportedProgram | None = None
        """What was imported."""
        self.is_cached = False
        """Whether the code came from the cache."""
        self._dump = Path(options.dump_ir) if options.dump_ir is not None else None
        self._label = ""
        self._cpu: str | None = None
        self._bar: _Bar | None = None

    @contextlib.contextmanager
    def progress(self, steps: int) -> Iterator[None]:
        """Shows the steps that are taken inside, of ``steps`` in all, on a terminal only."""
        wanted = self.options.progress
        shown = sys.stderr.isatty() if wanted is None else wanted
        self._bar = _Bar(
            total=steps,
            disable=not shown,
            leave=False,
            bar_format="disc {desc:10} {bar:24} {n_fmt}/{total_fmt} [{elapsed}]",
        )
        with self._bar, torch_trace.compilation(self.name), self.timeline.span("compile"):
            yield
            self._trace_facts()
        self._bar = None

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a step and shows it."""
        if self._bar is not None:
            self._bar.set_description_str(name)
        key = self._label + name
        start = time.perf_counter()
        with self.timeline.span(key), torch_trace.step(key):
            yield
        seconds = time.perf_counter() - start
        self.timings[key] = self.timings.get(key, 0.0) + seconds
        log.info("%s: %.3f s", key, seconds)
        if self._bar is not None:
            self._bar.update()

    def import_model(
        self,
        model: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        dynamic_shapes: Any,
        fixed: Mapping[str, Any] | None = None,
        *,
        library: bool = False,
        fallback: bool = False,
        examples: Examples | None = None,
        training: TrainingProgram | None = None,
    ) -> ImportedProgram:
        """The import stage; with ``training`` of a training step, of which ``model`` computes the loss."""
        if self._dump:
            self._dump.mkdir(parents=True, exist_ok=True)
        with self.step(IMPORT), boundary(IMPORT), rare_collections():
            if is_onnx(model):
                # It needs the onnx package, which nothing else does.
                with deferred_interrupts():
                    from .frontend.onnx import import_onnx

                self.program = import_onnx(model, fixed, dynamic_shapes, library=library)
            else:
                self.program = import_program(
                    model,
                    args,
                    kwargs,
                    dynamic_shapes,
                    library=library,
                    fallback=fallback,
                    examples=examples,
                    negotiation=self.negotiation,
                    training=training,
                )
        if self.program.fallbacks.used:
            used = [{"op": op.op, "source": op.source} for op in self.program.fallbacks.used]
            torch_trace.data("fallbacks", lambda: used)
        return self.program

    @contextlib.contextmanager
    def variant(self, cpu: str) -> Iterator[None]:
        """What happens inside is for one of several kinds of CPU: its name labels timings and dumps."""
        self._label = f"{cpu}/"
        self.texts.clear()
        if self._dump:
            self._folder.mkdir(parents=True, exist_ok=True)
        yield
        self._label = ""

    @property
    def machine(self) -> str:
        """Whose CPU the code is for: the name of another machine, or "" for one like this."""
        return find(self.options.target or "cpu").target.machine

    def lower(self, program: ImportedProgram, cpu: str | None = None) -> _native.Module:
        """The stages after the import.

        ``cpu`` is a kind of CPU of the target's machine, this one or not; None means what the options say.
        """
        return self.lowered(program, self.parsed(program, cpu))

    def parsed(self, program: ImportedProgram, cpu: str | None = None) -> _native.Module:
        """The input IR, for a kind of CPU."""
        self._cpu = cpu
        with boundary(IMPORT):
            return self._parse(program.text, cpu)

    def lowered(self, program: ImportedProgram, module: _native.Module) -> _native.Module:
        """The stages after the import, on the result of :meth:`parsed`."""
        for stage in self.pipeline:
            with self.step(stage.name), boundary(stage.name):
                self._run_stage(module, stage)
                if stage.name == PARTITION and self.negotiation is not None:
                    self._negotiate(module, self.negotiation)
                self.interface = module.interface() or self.interface
        if self.interface is not None:
            check_interface(program, self.interface)
        return module

    def _negotiate(self, module: _native.Module, negotiation: Negotiation) -> None:
        """Has back ends compile their regions."""
        cpu = "native" if self._cpu in (None, "host") else self._cpu
        machine = "" if self.machine in ("", _native.host_target()["machine"]) else self.machine
        builder = Builder(ahead_of_time=self._is_library, cpu=self.options.cpu or cpu or "native", machine=machine)
        negotiation.decide(module, builder)

    @property
    def _folder(self) -> Path:
        assert self._dump is not None
        return self._dump / self._label.rstrip("/") if self._label else self._dump

    def dump_prefix(self) -> str:
        """Where code generation leaves its listings; "" if it is to leave none."""
        return str(self._folder / f"{len(self.texts):02}-{EMIT}") if self._dump else ""

    def _parse(self, text: str, cpu: str | None) -> _native.Module:
        try:
            module = _native.Module.parse(text)
        except _native.PipelineError as error:
            self._fail(IMPORT, error, text, "")
        if cpu is None and self.machine:
            choice = find(self.options.target or "cpu")
            cpu = self.options.cpu or choice.target.cpus(choice.chips)[0]
        try:
            if cpu is None:
                module.set_host_target(self.options.cpu or "")
            else:
                module.set_target(cpu, self.machine)
        except ValueError as error:
            raise ArgumentValueError(str(error)) from None
        self._keep(IMPORT, module)
        return module

    def _run_stage(self, module: _native.Module, stage: Stage) -> None:
        try:
            # Verifying after each pass takes a third of the time; it is for those who look for mistakes in passes.
            looking = self.options.sanitize or self._dump is not None
            module.run(stage.text, verify_each=looking)
        except _native.PipelineError as error:
            self._fail(stage.name, error, self._last_text(), stage.text)
        # Model.ir makes the last stage's text again: code is long, and seldom looked at.
        if stage is not self.pipeline.stages[-1] or self.options.stop_after is not None or self._dump:
            self._keep(stage.name, module)
        else:
            self._trace_ir(stage.name, module)

    def _keep(self, stage: str, module: _native.Module) -> None:
        text = module.text(locations=True)
        self.texts[stage] = text
        self._trace_ir(stage, module)
        if self._dump:
            (self._folder / f"{len(self.texts) - 1:02}-{stage}.mlir").write_text(module.text())

    def take_cached(self, texts: Mapping[str, str]) -> None:
        """Takes the IR after each stage from the cache: the stages do not run."""
        self.is_cached = True
        for stage, text in texts.items():
            if stage not in self.texts and torch_trace.active():
                self._trace_ir(stage, _native.Module.parse(text))
        self.texts.update(texts)

    def _trace_ir(self, stage: str, module: _native.Module) -> None:
        label = self._label.replace("/", "_")
        torch_trace.text(f"{label}ir_{stage}", module.text)

    def _trace_facts(self) -> None:
        """What PyTorch's structured trace gets at the end."""
        if not torch_trace.active():
            return
        symbols = [] if self.program is None else self.program.symbols
        text = self.texts.get("shape")
        guards = [] if text is None else _native.Module.parse(text).guards()
        torch_trace.finish(symbols, guards, self.timings, {"model": self.name, "from the code cache": self.is_cached})

    def _last_text(self) -> str:
        return next(reversed(self.texts.values()))

    def emit_failed(self, error: Exception) -> NoReturn:
        """Raises a CompileError for a failure of code generation."""
        last = self.pipeline.stages[-1].text if len(self.pipeline) else ""
        raise CompileError(EMIT, str(error), None, self._write_reproducer(EMIT, self._last_text(), last)) from None

    def _fail(self, stage: str, error: _native.PipelineError, text: str, pipeline: str) -> NoReturn:
        """Raises a CompileError that says what the diagnostics say."""
        diagnostics = error.diagnostics
        texts = [d[1] if d[0] == "error" else f"{d[0]}: {d[1]}" for d in diagnostics] or [str(error)]
        # What a note prints of the IR is in the reproducer.
        lines = [_shortened(text) for text in texts]
        if error.failed_pass:
            lines.append(f"(pass {error.failed_pass})")
        source = next(
            (f"{file}:{line}" for _, _, file, line, _ in diagnostics if file.endswith(".py") or ".onnx#" in file), None
        )
        raise CompileError(stage, "\n".join(lines), source, self._write_reproducer(stage, text, pipeline)) from None

    def _write_reproducer(self, stage: str, text: str, pipeline: str) -> str:
        """The IR before the stage and the stage's passes, in the form of MLIR's own crash reproducers."""
        folder = self.options.reproducer_dir
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
