"""What must never import what, and what must never be written, checked by reading the source as syntax."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest
from imports import ROOT, Import, Source, sources, unit

SOURCES = sources()
UNITS = {source.unit for source in SOURCES}
LOW = {"spec", "batches", "seeding"}  # values, batches on the device, generators by name: below everything that trains

MAY_IMPORT: dict[str, set[str]] = {
    "identity": set(),
    "archive": {"identity"},
    "examples": set(),
    "recipe": {"identity"},
    "disk": {"identity"},
    "kinds": set(),
    "intervals": set(),
    "spec": {"identity", "kinds", "archive", "examples", "recipe", "usersource"},  # one face for the five
    "published": {"spec"},
    "results": {"spec"},
    "committed": {"spec", "results"},
    "shapes": set(),
    "decisions": {"intervals"},
    "verdicts": {"spec", "decisions"},
    "conformance": {"spec"},
    "data": {"spec", "disk", "shapes", "conformance"},
    "transfer": {"spec"},
    "shingles": set(),
    "duplicates": {"spec", "shingles"},
    "cards": {"spec", "duplicates"},
    "download": {"spec", "disk", "transfer"},
    "batches": {"spec"},
    "seeding": {"spec"},
    "store": {"spec", "results", "disk", "shapes"},
    "ops": set(),
    "tasks": {"spec"},
    "recipes": {"spec"},
    "ruler": {"spec"},
    "mixers": {"spec", "ops"},
    "usersource": {"identity"},
    "usermixer": {"spec", "ops", "usersource"},
    "contract": {"spec", "ops", "usermixer"},
    "objectives": LOW,
    "model": LOW | {"ops"},
    "ledger": {"spec", "ops"},  # of ops, the note of which kernels ran
    "flops": LOW | {"objectives", "ops"},
    "evaluate": LOW | {"objectives"},
    "protocols": LOW | {"objectives"},
    "train": LOW | {"objectives"},
    "probes": LOW | {"objectives", "evaluate", "model"},
    "foreign": {"spec", "model", "mixers", "ops", "ruler"},  # of ruler, its tokenizers; no task and no run
    "checkpoint": {"spec", "disk", "train"},
    "scored": LOW | {"objectives", "evaluate"},
    "run": LOW
    | {"data", "objectives", "model", "train", "evaluate", "flops", "ledger", "scored", "store", "checkpoint", "disk"},
    "tuning": {"spec", "store"},
    "restoring": {"spec", "mixers", "objectives", "tasks"},
    "answers": {"spec", "store", "ruler"},
    "longcontext": {"spec", "store", "ruler", "foreign", "answers"},
    "surveys": {"spec", "results", "longcontext"},
    "report": {"store", "published", "results", "spec", "disk", "shapes", "intervals"},
}
WITHOUT_TORCH = (
    "spec",
    "data",
    "transfer",
    "download",
    "cards",
    "results",
    "store",
    "published",
    "report",
    "recipes",
    "ruler",
    "tasks",
)
SHELL = {
    "__main__",
    "arguments",
    "cli",
    "commands",
    "dispatch",
    "listings",
    "planning",
    "forecast",
    "progress",
    "streams",
    "engines",
    "worker",
    "loading",
    "options",
    "notebook",
    "asking",
    "surveying",
    "board",
}
READY = {"small", "comparison", "decoders"}  # ready-made runs and models, which know tasks and mixers by name
ANY = {"levelfield", "studies"} | SHELL | READY  # they assemble the rest, or adapt what others made
ALONE = ("tasks", "mixers", "recipes", "probes", "studies")  # folders whose files do not know each other
VENDOR = {"transformers", "tokenizers", "fla", "mamba_ssm", "causal_conv1d", "triton", "flash_attn"}
TRACKERS = {"wandb", "trackio", "tensorboard", "mlflow"}
IMPORTED_AS = {"pillow": "PIL"}


def ours(source: Source) -> Iterator[Import]:
    return (i for i in source.imports if i.module.split(".")[0] == "levelfield")


def test_every_module_has_its_row_in_the_table() -> None:
    assert UNITS - set(MAY_IMPORT) - ANY == set()


def test_imports_follow_the_table() -> None:
    wrong = [
        f"{source.module}:{i.line} imports {i.module}"
        for source in SOURCES
        if source.unit in MAY_IMPORT
        for i in ours(source)
        if unit(i.module) not in MAY_IMPORT[source.unit] | {source.unit, "levelfield"}
    ]
    assert wrong == []


def test_files_of_one_folder_do_not_import_each_other() -> None:
    """They share through a private `_name.py`; the folder's `__init__` may know them all."""
    wrong = [
        f"{source.module}:{i.line} imports {i.module}"
        for source in SOURCES
        if source.unit in ALONE and source.path.name != "__init__.py"
        for i in ours(source)
        if unit(i.module) == source.unit and not i.module.split(".")[-1].startswith("_")
    ]
    assert wrong == []


def test_nobody_imports_studies() -> None:
    """The command line loads them by name, from their folder."""
    assert [s.module for s in SOURCES for i in ours(s) if unit(i.module) == "studies" and s.unit != "studies"] == []


def test_no_cycles() -> None:
    known = {s.module for s in SOURCES}
    graph = {s.module: {i.module for i in ours(s) if i.module in known} - {s.module} for s in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_torch_is_imported_lazily_where_reports_and_plans_need_the_module() -> None:
    eager = [
        f"{s.module}:{i.line}"
        for s in SOURCES
        if s.unit in WITHOUT_TORCH
        for i in s.imports
        if i.module.split(".")[0] == "torch" and not (i.lazy and s.unit not in ("store", "published", "report"))
    ]
    assert eager == []


def test_vendor_packages_stay_in_foreign_and_trackers_out_of_training() -> None:
    for source in SOURCES:
        used = {i.module.split(".")[0] for i in source.imports}
        assert not used & VENDOR or source.unit == "foreign", source.module
        assert not used & TRACKERS or source.unit not in MAY_IMPORT, source.module


def test_probes_neither_train_nor_write_files() -> None:
    writing = {"write_text", "write_bytes", "mkdir", "save", "savez", "save_file", "backward", "unlink"}
    for source in (s for s in SOURCES if s.unit == "probes"):
        assert not [i for i in source.imports if i.module.startswith("torch.optim")], source.module
        for call, name, _ in source.calls():
            assert not name.startswith("torch.optim"), source.at(call)
            assert not (isinstance(call.func, ast.Attribute) and call.func.attr in writing), source.at(call)
            assert name != "open", source.at(call)


LIGHT = (
    "",
    ".report",
    ".store",
    ".published",
    ".spec",
    ".data",
    ".results",
    ".tasks",
    ".recipes",
    ".ruler",
    ".cli",
    ".engines",
)


@pytest.mark.parametrize("module", [m for m in LIGHT if not m or m[1:] in UNITS])
def test_importing_it_leaves_torch_alone(module: str) -> None:
    code = f"import sys, levelfield{module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


@pytest.mark.skipif("cli" not in UNITS, reason="there is no command line")
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["list", "tasks"]], ids=" ".join)
def test_help_and_the_list_of_tasks_leave_torch_alone(arguments: list[str]) -> None:
    code = f"""
import sys
from levelfield.cli import main
try:
    main({arguments!r})
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60, capture_output=True)
    assert done.stdout


def test_no_constructor_swallows_keywords() -> None:
    names = {"__init__", "__new__", "__post_init__", "build"}
    found = [
        source.at(node)
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef) and node.name in names and node.args.kwarg
    ]
    assert found == []


def test_no_hasattr() -> None:
    found = [s.at(call) for s in SOURCES if s.unit != "foreign" for call, name, _ in s.calls() if name == "hasattr"]
    assert found == []


def test_global_generators_are_seeded_only_inside_fork_rng() -> None:
    """`levelfield.seeding.seeded` is such a scope: it gives back the state it found."""
    seeding = re.compile(
        r"(torch(\.cuda|\.mps|\.random|\.default_generator)?\.manual_seed(_all)?|(np|numpy)\.random\.seed|random\.seed)$"
    )
    found = [
        source.at(call)
        for source in SOURCES
        for call, name, around in source.calls()
        if seeding.match(name)
        and not any(isinstance(n, ast.With) and "fork_rng" in ast.unparse(n.items[0]) for n in around)
    ]
    assert found == []


def test_there_is_one_training_loop() -> None:
    calls = [
        source.unit
        for source in SOURCES
        for call, _, _ in source.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    ]
    assert set(calls) <= {
        "train",
        "contract",
        "flops",
        "forecast",
    }  # the contract looks at gradients, flops counts their cost, a forecast times a pass
    assert calls.count("train") == ("train" in UNITS)
    optimizers = {s.unit for s in SOURCES for _, name, _ in s.calls() if name.startswith(("torch.optim.", "optim."))}
    assert optimizers <= {"train"}


def test_no_architecture_or_task_is_tested_by_name() -> None:
    """RULER has tasks of its own, and words that are also names here: it is given no task or model of ours (below)."""
    own = {"tasks", "mixers", "studies", "recipes", "ruler"} | READY
    stems = {s.path.stem for s in SOURCES if s.unit in ("tasks", "mixers")} - {"__init__"}
    found = [
        source.at(node)
        for source in SOURCES
        if source.unit not in own
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(leaf, ast.Constant) and leaf.value in stems for leaf in ast.walk(node))
    ]
    assert found == []


def test_ruler_is_given_no_task_and_no_model_of_ours() -> None:
    """So "linear" there is a way of searching and "text" a key of a file. Types count, as every parameter has one."""
    taken = {
        alias.name
        for source in SOURCES
        if source.unit == "ruler"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and unit(node.module or "") != "ruler"
        for alias in node.names
        if (node.module or "").startswith("levelfield")
    }
    assert taken <= {"UserError", "closest", "derive_seed"}


def third_party(source: Source) -> set[str]:
    return {i.module.split(".")[0] for i in source.imports} - set(sys.stdlib_module_names) - {"levelfield"}


def test_dependencies_are_used_and_uses_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        plain = (re.split(r"[<>=!~\[; ]", r)[0] for r in requirements)
        return {IMPORTED_AS.get(name, name) for name in plain}

    core = names(project["dependencies"])
    used = set().union(*(third_party(s) for s in SOURCES))
    assert core - used == set(), "declared and never imported"
    extras = names([r for group in project["optional-dependencies"].values() for r in group]) | VENDOR
    assert used - core - extras == set(), "imported and not declared"


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_nothing_committed_names_a_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:work|root|farm|home|Users|mnt|opt)/\w|file:///|pythonhosted|\+cpu\b")
    found = []
    for name in tracked():
        text = (ROOT / name).read_bytes()
        if b"\0" not in text[:1024]:
            rows = text.decode(errors="replace").splitlines()
            found += [f"{name}:{n + 1}" for n, row in enumerate(rows) if place.search(row)]
    assert [f for f in found if not f.startswith("tests/test_boundaries.py")] == []


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    assert "torch==2.13.0" in lines
