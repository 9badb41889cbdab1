"""The pipeline as data, and the options."""

import dataclasses

import pytest

import disc
from disc.pipeline import Pipeline, Stage, default


def test_default_is_the_architecture():
    assert default("cpu").names == ("shape", "library", "fusion", "schedule", "memory", "codegen")
    assert default() is default("cpu")
    with pytest.raises(ValueError, match=r"no target 'tpu'; the targets are: aarch64-linux-gnu, .*cpu, cuda, "):
        default("tpu")


@pytest.mark.parametrize("stage", default(), ids=lambda s: s.name)
def test_each_stage_ends_by_checking_its_contract(stage):
    assert stage.passes[-1] == f"disc-{stage.name}-verify"
    assert stage.text == f"builtin.module({','.join(stage.passes)})"
    assert str(stage) in str(default())


def test_changes_give_new_pipelines():
    pipeline = default()
    mine = Stage("mine", ("canonicalize", "cse"))
    assert pipeline.until("fusion").names == ("shape", "library", "fusion")
    assert pipeline.until("import").names == ()
    assert pipeline.insert_after("fusion", mine).names[2:4] == ("fusion", "mine")
    assert pipeline.insert_after("import", mine).names[0] == "mine"
    assert pipeline.insert_before("shape", mine).names[0] == "mine"
    assert pipeline.append(mine).names[-1] == "mine"
    assert pipeline.remove("library").names[1] == "fusion"
    assert pipeline.replace("library", mine).names[1] == "mine"
    replaced = pipeline.replace("library", "cse, canonicalize{max-iterations=1 top-down=false},func.func(cse,sccp)")
    assert replaced["library"].passes == (
        "cse",
        "canonicalize{max-iterations=1 top-down=false}",
        "func.func(cse,sccp)",
    )
    assert pipeline["fusion"].without("disc-fusion-recognize-attention").passes == pipeline["fusion"].passes[1:]
    assert pipeline == default()
    assert len(pipeline) == 6


def test_mistakes_say_what_there_is():
    pipeline = default()
    with pytest.raises(ValueError, match="no stage 'fuse'; the stages are: import, shape, library, fusion"):
        pipeline.until("fuse")
    with pytest.raises(ValueError, match="two stages are called 'shape'"):
        pipeline.append(Stage("shape", ()))
    with pytest.raises(ValueError, match="two stages are called 'import'"):
        pipeline.append(Stage("import", ()))
    with pytest.raises(ValueError, match="has no pass 'cse'; it has: disc-library-verify"):
        pipeline["library"].without("cse")
    with pytest.raises(ValueError, match="one word"):
        Stage("two words", ())
    with pytest.raises(TypeError, match="sequence of strings"):
        Stage("mine", "cse")
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline.target = "gpu"


def test_options_are_checked():
    with pytest.raises(TypeError, match="unexpected keyword argument 'thread'"):
        disc.Options(thread=2)
    with pytest.raises(ValueError, match="no stage 'fuse'"):
        disc.Options(stop_after="fuse")
    for threads in (0, -1, 2.5, "2"):
        with pytest.raises(ValueError, match="threads: expected None or a number from 1"):
            disc.Options(threads=threads)
    with pytest.raises(ValueError, match="opt_level"):
        disc.Options(opt_level=4)
    with pytest.raises(TypeError, match=r"pipeline: expected a disc.pipeline.Pipeline, got list"):
        disc.Options(pipeline=[])
    custom = Pipeline("cpu", (Stage("mine", ("cse",)),))
    assert disc.Options(pipeline=custom, stop_after="mine").stages is custom


def test_without_a_pass():
    without = default().without("disc-schedule-winograd")
    assert "disc-schedule-winograd" in str(default()) and "disc-schedule-winograd" not in str(without)
    with pytest.raises(ValueError, match="no stage has a pass 'disc-nothing'"):
        default().without("disc-nothing")
