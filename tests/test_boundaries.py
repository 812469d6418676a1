"""What must never import what, and what must never be written, checked by reading the source as syntax.

Who may import whom is the table in CONTRIBUTING.md, which is read here: a row applies to what lies in its unit and in
no row with a longer name. Imports that only types need count like all others.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest
from imports import Import, Source, opened, row_of, sources, table, unit, within
from repository import ROOT

SOURCES = sources()
TABLE = table()
UNITS = {source.unit for source in SOURCES}
WITHOUT_TORCH = (
    "spec",
    "files",
    "data",
    "runs.store",
    "runs.results",
    "published",
    "report",
    "runs.trackers",
    "recipes",
    "ruler",
    "tokenizer",
    "tasks",
    "longcontext.served",
)
NEVER_TORCH = (
    "files",
    "runs.store",
    "runs.results",
    "published",
    "report",
    "runs.trackers",
    "tokenizer",
)  # not inside a function either
ALONE = ("tasks", "mixers", "recipes", "probes", "studies")  # folders whose files do not know each other
VENDOR = {"transformers", "tokenizers", "fla", "mamba_ssm", "causal_conv1d", "triton", "flash_attn"}
TRACKERS = {"wandb", "trackio", "tensorboard", "mlflow"}
IMPORTED_AS = {"pillow": "PIL"}


def ours(source: Source) -> Iterator[Import]:
    return (i for i in source.imports if i.module.split(".")[0] == "levelfield")


def holds(name: str) -> bool:
    return any(within(source.module, name) for source in SOURCES)


def test_every_module_has_its_row_in_the_table_and_every_row_its_modules() -> None:
    assert [s.module for s in SOURCES if row_of(s.module, TABLE) is None] == []
    assert [name for name in TABLE if not holds(name)] == []
    named = {name for row in TABLE.values() for name in row.named}
    assert [name for name in named if not holds(name)] == []


def test_every_name_in_the_lists_here_exists() -> None:
    listed = (*WITHOUT_TORCH, *ALONE, *(m.removeprefix(".") for m in LIGHT if m))
    assert [name for name in listed if not holds(name)] == []


def test_imports_follow_the_table() -> None:
    wrong = []
    for source in SOURCES:
        row = row_of(source.module, TABLE)
        assert row is not None
        wrong += [
            f"{source.module}:{i.line} imports {i.module}"
            for i in ours(source)
            if not within(i.module, row.name) and not row.may_import(i.module)
        ]
    assert wrong == []


def test_the_table_allows_no_import_that_nobody_has() -> None:
    unused = {(name, allowed) for name, row in TABLE.items() if not row.anything_but for allowed in row.named}
    for source in SOURCES:
        row = row_of(source.module, TABLE)
        assert row is not None
        unused -= {(row.name, allowed) for allowed in row.named for i in ours(source) if within(i.module, allowed)}
    assert unused == set()


def test_the_top_of_the_package_stays_small() -> None:
    modules = {s.unit for s in SOURCES if s.path.parent.name == "levelfield"} - {"__init__"} | {"__init__"}
    assert len(UNITS) <= 33
    assert len(modules) <= 14


def test_files_of_one_folder_do_not_import_each_other() -> None:
    """They share through a private `_name.py` or `_folder/`; the folder's `__init__` may know them all."""
    wrong = [
        f"{source.module}:{i.line} imports {i.module}"
        for source in SOURCES
        if source.unit in ALONE and source.path.name != "__init__.py"
        for i in ours(source)
        if unit(i.module) == source.unit and not any(part.startswith("_") for part in i.module.split("."))
    ]
    assert wrong == []


def test_private_modules_are_imported_in_their_own_folder_alone() -> None:
    wrong = [
        f"{source.module}:{i.line} imports {i.module}"
        for source in SOURCES
        for i in ours(source)
        if unit(i.module) not in (source.unit, "_version") and any(p.startswith("_") for p in i.module.split("."))
    ]
    assert wrong == []


def test_the_training_loop_is_understood_from_few_files() -> None:
    """At most fourteen files besides its own, and with it at most 2,300 lines."""
    known = {source.module: source for source in SOURCES}
    files = opened("levelfield.train", known)
    lines = {module: known[module].path.read_text().count("\n") for module in {"levelfield.train", *files}}
    assert len(files) <= 14, sorted(files)
    assert sum(lines.values()) <= 2300, lines
    assert {"levelfield.model", "levelfield.objectives.base", "levelfield.spec.recipe"} <= files


def test_nobody_imports_studies() -> None:
    """The command line loads them by name, from their folder."""
    assert [s.module for s in SOURCES for i in ours(s) if unit(i.module) == "studies" and s.unit != "studies"] == []


def _acyclic(graph: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_cycles_between_modules() -> None:
    known = {s.module for s in SOURCES}
    _acyclic({s.module: {i.module for i in ours(s) if i.module in known} - {s.module} for s in SOURCES})


def test_no_cycles_between_units() -> None:
    graph: dict[str, set[str]] = {name: set() for name in UNITS}
    for source in SOURCES:
        graph[source.unit] |= {unit(i.module) for i in ours(source)} - {source.unit}
    _acyclic(graph)


def test_torch_is_imported_lazily_where_reports_and_plans_need_the_module() -> None:
    eager = [
        f"{s.module}:{i.line}"
        for s in SOURCES
        if (row := next((name for name in WITHOUT_TORCH if within(s.module, name)), None))
        and not within(s.module, "data.batches")
        for i in s.at_run_time
        if i.module.split(".")[0] == "torch" and not (i.lazy and row not in NEVER_TORCH)
    ]
    assert eager == []


def test_vendor_packages_stay_in_pretrained_and_trackers_out_of_training() -> None:
    for source in SOURCES:
        used = {i.module.split(".")[0] for i in source.imports}
        assert not used & VENDOR or source.unit == "pretrained", source.module
        assert not used & TRACKERS or within(source.module, "runs.trackers"), source.module


def test_probes_neither_train_nor_write_files() -> None:
    writing = {"write_text", "write_bytes", "mkdir", "save", "savez", "save_file", "backward", "unlink"}
    for source in (s for s in SOURCES if s.unit == "probes"):
        assert not [i for i in source.imports if i.module.startswith("torch.optim")], source.module
        for call, name, _ in source.calls:
            assert not name.startswith("torch.optim"), source.at(call)
            assert not (isinstance(call.func, ast.Attribute) and call.func.attr in writing), source.at(call)
            assert name != "open", source.at(call)


LIGHT = (
    "",
    ".spec",
    ".files",
    ".data.prepared",
    ".data.card",
    ".data.download",
    ".runs.store",
    ".runs.results",
    ".published",
    ".report",
    ".tasks",
    ".mixers",
    ".recipes",
    ".ruler",
    ".tokenizer",
    ".engine.local",
    ".engine.find",
    ".cli.app",
    ".cli.served_command",
    ".cli.ruler_command",
)


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_leaves_torch_alone(module: str) -> None:
    code = f"import sys, levelfield{module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_a_mixer_is_known_by_name_before_it_is_loaded_and_found_without_the_others() -> None:
    code = """
import sys
from levelfield.presets import by_name
assert by_name.is_mixer("conv(kernel=5)") and not by_name.is_mixer("reach")
assert "torch" not in sys.modules
by_name.mixer("conv")
assert "levelfield.mixers.conv" in sys.modules and "levelfield.mixers.mega" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["list", "tasks"], ["list", "studies"]], ids=" ".join
)
def test_help_and_lists_leave_torch_alone(arguments: list[str]) -> None:
    code = f"""
import sys
from levelfield.cli.app import main
try:
    main({arguments!r})
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
assert {arguments!r} != ["list", "tasks"] or "levelfield.user.own_data" not in sys.modules, "for files of a user's own"
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60, capture_output=True)
    assert done.stdout


COMPUTING = ("torch", "numpy", "numba", "matplotlib", "duckdb", "safetensors")


@pytest.mark.parametrize("module", ["", ".spec", ".files", ".presets.options", ".engine.placement", ".cli.app"])
def test_importing_what_the_command_line_needs_loads_nothing_that_computes(module: str) -> None:
    code = f"import sys, levelfield{module}; assert not set({COMPUTING!r}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_no_page_of_help_loads_anything_that_computes() -> None:
    code = f"""
import sys
from levelfield.cli.app import COMMANDS, main
from levelfield.cli.dispatch import Group

def pages(group, before=()):
    yield [*before, "--help"]
    for name, command in group.commands.items():
        words = (*before, name)
        yield from pages(command, words) if isinstance(command, Group) else [[*words, "--help"]]

for words in pages(COMMANDS):
    try:
        main(words)
    except SystemExit as stop:
        assert not stop.code, words
    assert not set({COMPUTING!r}) & set(sys.modules), words
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert done.stdout.count("usage: levelfield") > 20


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
    found = [s.at(call) for s in SOURCES if s.unit != "pretrained" for call, name, _ in s.calls if name == "hasattr"]
    assert found == []


def test_global_generators_are_seeded_only_inside_fork_rng() -> None:
    """`levelfield.rng.seeded` is such a scope: it gives back the state it found."""
    seeding = re.compile(
        r"(torch(\.cuda|\.mps|\.random|\.default_generator)?\.manual_seed(_all)?|(np|numpy)\.random\.seed|random\.seed)$"
    )
    found = [
        source.at(call)
        for source in SOURCES
        for call, name, around in source.calls
        if seeding.match(name)
        and not any(isinstance(n, ast.With) and "fork_rng" in ast.unparse(n.items[0]) for n in around)
    ]
    assert found == []


def test_there_is_one_training_loop() -> None:
    calls = [
        source.unit
        for source in SOURCES
        for call, _, _ in source.calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    ]
    # The contract looks at gradients, the ledger counts their cost, a plan measures a pass.
    assert set(calls) <= {"train", "contract", "runs", "engine"}
    assert calls.count("train") == 1
    optimizers = {s.unit for s in SOURCES for _, name, _ in s.calls if name.startswith(("torch.optim.", "optim."))}
    assert optimizers <= {"train"}


def test_no_architecture_or_task_is_tested_by_name() -> None:
    """RULER has tasks of its own, and words that are also names here: it is given no task or model of ours (below)."""
    own = {"tasks", "mixers", "studies", "recipes", "ruler", "presets"}
    stems = {s.path.stem for s in SOURCES if s.path.parent.name in ("tasks", "mixers")} - {"__init__"}
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
    assert taken <= {"UserError", "closest", "derive_seed", "Tokenizer", "SlowTokenizer", "Bytes", "RwkvTokenizer"}


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


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-peers.txt"])
def test_constraints_are_names_and_versions_only(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    assert "torch==2.13.0" in lines
