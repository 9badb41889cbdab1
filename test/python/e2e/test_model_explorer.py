"""Graphs for Model Explorer: the IR of every stage, and node data of profiles."""

import json

import pytest
import torch
from torch import nn

import disc
from disc.errors import ArgumentValueError
from disc.viewers import generic_ir, model_explorer
from minilm import compile_model, load_model
from viewer_models import decoder, doubling, positive

STAGES = ["0 import", "1 shape", "2 library", "3 fusion", "4 schedule", "5 memory", "6 codegen"]
MODELS = {
    "decoder": decoder,
    "loop on data": doubling,
    "data-dependent size": positive,
    "minilm": lambda: compile_model(load_model()),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def nodes_of(model, stage):
    (graph,) = model_explorer.collection(model, [stage]).graphs
    return graph.nodes


def facts(node):
    return {item.key: item.value for item in node.attrs}


def shapes(node):
    return {output.id: output.attrs[0].value for output in node.outputsMetadata}


def test_every_stage_is_a_graph_whose_edges_lead_to_outputs(model):
    graphs = model_explorer.collection(model).graphs
    assert [graph.id for graph in graphs] == STAGES
    for graph in graphs:
        known = {node.id: node for node in graph.nodes}
        assert len(known) == len(graph.nodes)
        edges = [(edge, node) for node in graph.nodes for edge in node.incomingEdges]
        assert edges
        for edge, node in edges:
            assert edge.sourceNodeId in known and edge.sourceNodeId != node.id, (graph.id, node.label)
            if graph.id != "6 codegen":
                assert edge.sourceNodeOutputId in shapes(known[edge.sourceNodeId]), (graph.id, node.label)


def test_every_operation_is_a_node(model):
    """Until code generation, but for bodies that only pass a value on."""
    for number, stage in enumerate(("import", "shape", "library", "fusion", "schedule", "memory")):
        counted = 0

        def count(operation):
            nonlocal counted
            for block in generic_ir.blocks(operation):
                operations = list(block.operations)
                if len(operations) > 1 or operation.name in ("builtin.module", "func.func", "disc_rt.entry"):
                    counted += len(operations)
                    for inner in operations:
                        count(inner.operation)

        count(generic_ir.parse(model.ir(stage, generic=True)).operation)
        made = [node for node in nodes_of(model, stage) if "operation" in facts(node)]
        assert abs(len(made) - counted) <= len([n for n in made if facts(n)["operation"] == "disc_plan.kernel_func"]), (
            number,
            stage,
        )


def test_symbolic_shapes_and_source_lines():
    nodes = nodes_of(doubling(), "fusion")
    argument = next(node for node in nodes if node.label == "x")
    assert shapes(argument) == {"0": "f32[rows, 16]"}
    kernels = [node for node in nodes if facts(node).get("operation") == "disc_plan.kernel"]
    assert all(node.namespace.startswith("main/") for node in kernels)
    assert {facts(node)["kind"] for node in kernels} >= {"row", "loop"}
    assert all("viewer_models.py:" in facts(node)["source"] for node in kernels)
    sliced = next(node for node in nodes if facts(node).get("operation") == "disc_tensor.slice")
    assert any(shape.startswith("i64[u") for shape in shapes(sliced).values())
    loop = next(node for node in nodes if facts(node).get("operation") == "disc_tensor.loop")
    assert [node for node in nodes if node.namespace.startswith(f"{loop.namespace}/")]


def test_launches_take_what_launches_wrote():
    nodes = nodes_of(decoder(), "memory")
    launches = {node.id: node for node in nodes if facts(node).get("operation") == "disc_rt.launch"}
    main = [node for node in launches.values() if node.namespace == "main"]
    # All but the first read what another one computed.
    assert all(any(e.sourceNodeId in launches for e in node.incomingEdges) for node in main[1:])
    assert any(shape == "f32[batch, length, 64]" for node in main for shape in shapes(node).values())


def test_functions_of_machine_code_use_each_other():
    nodes = {node.label: node for node in nodes_of(decoder(), "codegen")}
    main = nodes["disc_main"]
    used = {label for label, node in nodes.items() if node.id in {e.sourceNodeId for e in main.incomingEdges}}
    assert any(label.startswith("k") for label in used)
    assert int(facts(main)["operations"]) > 10


def test_properties_of_every_dialect_are_listed():
    module = generic_ir.parse(
        '"builtin.module"() ({ "a.b"() <{t = "}> \\" {", e = #disc_shape.expr<B * 2>}> {d = 1 : i64} : () -> () })'
        " : () -> ()"
    )
    (operation,) = module.body.operations
    found = generic_ir.attributes(operation.operation)
    assert {name: str(value) for name, value in found.items()} == {
        "t": '"}> \\22 {"',
        "e": "#disc_shape.expr<B * 2>",
        "d": "1 : i64",
    }


def test_node_data_of_a_profile(tmp_path):
    model = decoder()
    ids = torch.randint(0, 101, (4, 32))
    with model.profile() as profile:
        model(ids)
        model(ids)
    files = model_explorer.save_node_data(profile, tmp_path / "data")
    assert [file.name for file in files] == ["time.json", "bytes.json"]
    for metric, file in zip(("time (us)", "bytes of a launch"), files, strict=True):
        found = json.loads(file.read_text())
        assert list(found) == ["4 schedule", "5 memory"]
        for stage, data in found.items():
            nodes = {node.id: node for node in nodes_of(model, stage[2:])}
            operations = {facts(nodes[key])["operation"] for key in data["results"]}
            assert operations == {"disc_plan.kernel" if stage == "4 schedule" else "disc_rt.launch"}
            assert data["name"] == metric
            total = sum(entry["value"] for entry in data["results"].values())
            if metric == "time (us)":
                assert total == pytest.approx(profile.seconds() * 1e6, abs=0.1)
            else:
                infos = model.kernels(batch=4, length=32)
                assert total == sum((i.reads + i.writes) * i.launches.get("main", 0) for i in infos)


def test_files_that_model_explorer_opens(tmp_path):
    """Through the server's own protocol: a saved model, an exported program, IR, and JSON."""
    from model_explorer.extension_manager import ExtensionManager

    manager = ExtensionManager(["disc.viewers.model_explorer"])
    manager.load_extensions()
    (extension,) = [e for e in manager.get_extensions_metadata() if e["id"] == "disc"]
    assert extension["fileExts"] == ["disc", "pt2", "onnx", "mlir"]
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    rows = torch.export.Dim("rows", max=64)
    model = disc.compile(module, (torch.randn(3, 8),), dynamic_shapes=({0: rows},))
    model.save(tmp_path / "model.disc")
    program = torch.export.export(module, (torch.randn(3, 8),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "model.pt2")
    (tmp_path / "model.mlir").write_text(model.ir("fusion"))
    stages = {"model.disc": STAGES, "model.pt2": STAGES[:-1], "model.mlir": ["model"]}
    for name, expected in stages.items():
        command = {"cmdId": "convert", "extensionId": "disc", "modelPath": str(tmp_path / name), "settings": {}}
        response = manager.run_cmd({**command, "deleteAfterConversion": False})
        (made,) = json.loads(json.dumps(response))["graphCollections"]
        assert [graph["id"] for graph in made["graphs"]] == expected
    model_explorer.save(model, tmp_path / "model.json", ["import"])
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["label"] == "Sequential" and [graph["id"] for graph in content["graphs"]] == STAGES[:1]


def test_wrong_arguments():
    model = positive()
    with pytest.raises(ArgumentValueError, match="the stages are: import, shape"):
        model_explorer.collection(model, ["nowhere"])
    with pytest.raises(ArgumentValueError, match="pickled"):
        model_explorer.node_data(disc.Profile())
