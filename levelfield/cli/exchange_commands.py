"""Implements `export` and `import`: runs as folders that stand by themselves; samples for other evaluators, and the
answers that those have stored.

levelfield export listops-s4-scratch-0-1a2b3c4d5e && levelfield import exported/listops-s4-scratch-0-1a2b3c4d5e
levelfield export ruler --tokenizer models/pythia-160m --lengths 4096 --folder tasks
levelfield import results/*/samples_*.jsonl --model pythia-160m
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.cli import ruler_command
from levelfield.cli.ruler_options import EvalOptions, TextOptions
from levelfield.cli.streams import Say, say_all, several
from levelfield.files import check_name, disk_errors, read_json
from levelfield.longcontext import damage, earlier_export, exported, imported, model_record
from levelfield.longcontext.answers import Answers, leave_out
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.reserved import reserved
from levelfield.longcontext.served.asking import note_ways
from levelfield.longcontext.served.lengths import tokenizer_here
from levelfield.longcontext.served.wrappings import with_own_template
from levelfield.longcontext.survey import Checkpoint
from levelfield.runs import share, store
from levelfield.runs.share_card import Beside
from levelfield.spec import UserError
from levelfield.spec.errors import format_error

SUFFIX = "-imported"


class Target(NamedTuple):
    """The format of exported files, and their folder."""

    form: exported.Format
    folder: Path


def export(name: str, asked: EvalOptions, texts: TextOptions, target: Target, say: Say) -> None:
    """Writes the samples that the options describe. Raises UserError."""
    if asked.table:
        raise UserError("--table is of models that are evaluated here: leave it out, and name --tasks and --lengths.")
    sources = ruler_command.sources(texts)
    (evaluation,) = ruler_command.evaluations(asked, name, sources)
    tokenizer = tokenizer_here(name)
    evaluation = with_own_template(evaluation, tokenizer)
    ruler_command.check([evaluation])
    with disk_errors(target.folder, "--folder"):
        files, left = exported.export(evaluation, tokenizer, target.form, target.folder)
        old = earlier_export.clear(target.folder, files)
    say_all((*ruler_command.left_out(asked, name, sources), *ruler_command.skipped(left)), say)
    say(f"Wrote {several(len(files), 'file')} to {target.folder}.")
    if old:
        names = ", ".join(str(path.relative_to(target.folder)) for path in old[:3]) + (", ..." if len(old) > 3 else "")
        count = several(len(old), "file")
        say(f"Removed {count} of an earlier export from it, which this one does not have ({names}).")
    folder = shlex.quote(str(target.folder))
    if target.form == "lm-eval":
        say(
            f"lm_eval --model hf --model_args pretrained=MODEL --include_path {folder} --tasks "
            f"{exported.GROUP} --log_samples --output_path results"
        )
        say("levelfield import results/*/samples_*.jsonl --model MODEL")
    if target.form == "lighteval":
        module = target.folder / exported.GROUP
        listed, tasks = (shlex.quote(f"{module}{ending}") for ending in (".txt", ".py"))
        say(
            f"lighteval accelerate model_name=MODEL,batch_size=1,override_chat_template=false {listed} "
            f"--custom-tasks {tasks} --save-details --output-dir answers"
        )
        say("levelfield import answers/details/MODEL/*/*.parquet --model MODEL")
    if target.form == "inspect":
        module = shlex.quote(f"{target.folder / exported.GROUP}.py")
        say(f"inspect eval {module} --model PROVIDER/NAME")
        say("levelfield import logs/*.eval --model NAME")
    if target.form == "jsonl":
        say(f'Add the answer to each line as "pred", then: levelfield import {folder} --model NAME')


def import_(
    files: Sequence[str], model: str, length: int | None, say: Say, *, runs_dir: Path, report_dir: Path
) -> None:
    """Reads exported runs back where only folders without answers are named. Otherwise it stores the answers of all
    files in one folder, and writes rows and report. Raises UserError."""
    if absent := [file for file in files if not os.path.exists(file)]:
        raise UserError(f"There is no file or folder {absent[0]}: name what an evaluator or `levelfield export` wrote.")
    for path in (path for path in map(Path, files) if path.is_file()):
        if share.is_packed(path.parent):
            raise UserError(f"{path} is a part of an exported run: name its folder, {path.parent}.")
        if path.suffix not in imported.SUFFIXES:
            raise UserError(f"{path} is neither an exported run nor has it answers of {imported.EXAMPLES}: name these.")
    given = {path: imported.files_in(path) if path.is_dir() else [path] for path in map(Path, files)}
    if given and not any(given.values()):
        import_runs(list(given), runs_dir, say)
        return
    if empty := [folder for folder, inside in given.items() if not inside]:
        raise UserError(f"{empty[0]} has no answers of {imported.EXAMPLES}: leave it out, or import it alone.")
    if not files or not model:
        raise UserError("Name the files of answers, and the model with --model.")
    label = Checkpoint("", model).folder + SUFFIX
    check_name("model", label)
    paths = [file for inside in given.values() for file in inside]
    twice: list[Prediction] = []
    found = imported.read_all(paths, length, twice.append)
    failed = imported.failed(paths, found)
    folder = runs_dir / "ruler" / label
    with reserved(folder, report_dir, say), disk_errors(folder, "--runs-dir"):
        damage.check(folder)
        model_record.claim(folder, model=model, tokenizer="unknown", precision="imported")
        note_ways(folder, imported.sentence(found))
        answers = Answers(folder)
        replaced, beside = answers.replaced(found)
        for each in found:
            answers.append(each)
        answers.sync()
        leave_out(folder, [failed], failed.left)
    if twice:
        say(f"{several(len(twice), 'answer')} of these files gave way to a later one to the same question.")
    if replaced:
        say(f"{several(replaced, 'answer')} took the place of an earlier one to the same question.")
    if beside:
        say(
            f"{several(beside, 'earlier answer')} to other questions of the same tasks and lengths stayed, and scores "
            "are of both: give another run a --model name of its own."
        )
    ruler_command.conclude(folder, report_dir, say)
    say_all(_cut_off(found), say)


def _cut_off(found: Sequence[Prediction]) -> Iterator[str]:
    """Yields a line for each length at which the model was given far fewer tokens than prompts have."""
    for length in sorted({p.length for p in found if p.cut_off}):
        cut = [p for p in found if p.cut_off and p.length == length]
        yield (
            f"At {length} the model was given {max(p.counted['prompt'] for p in cut):,} tokens or fewer of "
            f"{several(len(cut), 'prompt')} with up to {max(p.tokens for p in cut):,}: unless its tokenizer differs "
            "from that of the export, they were cut off, and their scores say nothing about this length."
        )


def export_run(where: Path, target: Path, push: str, say: Say, licence: str = "") -> bool:
    """Packs a run into a folder, and uploads that where `push` names a place on the hub; returns whether the hub took
    it, or was not asked. Raises UserError."""
    from levelfield.engine.load import code

    if not store.complete(where):
        share.pack(where, target)  # which says why it cannot be exported
    files = share.pack(where, target, Beside(licence or "unknown", *code(read_json(where / store.SPEC))))
    say(f"Wrote {len(files)} files to {target}: read them back with `levelfield import {shlex.quote(str(target))}`.")
    if push and (why := _push(target, push)):
        again = shlex.join(["hf", "upload", push, str(target)])
        say(f"The hub did not take it as {push} ({why}): {target} is kept, and `{again}` pushes it again.")
        return False
    if push:
        say(f"Uploaded {target} to {push}.")
    return True


def _push(folder: Path, repository: str) -> str:
    """Uploads a folder and returns "", or why the hub did not take it. Raises UserError without the package."""
    try:
        from huggingface_hub import HfApi  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("--push needs the package huggingface_hub: pip install 'levelfield[hub]'.") from error
    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder))
    except Exception as error:  # of the network, of the account, or of the name
        return format_error(error)
    return ""


def import_runs(folders: Sequence[Path], runs_dir: Path, say: Say) -> None:
    """Reads exported runs back. Raises UserError for a folder that is none, that is not whole or is another run."""
    from levelfield.engine.restore import another_id

    for folder in folders:
        if not share.is_packed(folder):
            inside = sorted(each.parent for each in folder.glob(f"*/{share.MANIFEST}"))
            if inside:
                raise UserError(f"{folder} is no exported run: name one in it, such as {inside[0]}.")
            raise UserError(
                f"{folder} is no exported run, which `levelfield export RUN_ID` writes, and has no answers of "
                f"{imported.EXAMPLES}: name a folder or file of these."
            )
        name, spec = share.described(folder)
        if other := another_id(spec, name):
            raise UserError(f"{folder} is not the run {name}: its {store.SPEC} is of {other}. Get the folder again.")
        say(f"Read {share.unpack(folder, runs_dir)}")
        for study in share.studies(folder):
            say(_report_of(study["study"], study["effort"], spec, runs_dir))


def _report_of(study: str, effort: str, spec: Any, runs_dir: Path) -> str:
    """Returns which command reports a study that a run is of. A comparison is named by its mixer, which not every run
    of it has."""
    from levelfield.engine.find import listed
    from levelfield.engine.restore import compared

    place = ["--runs-dir", str(runs_dir)] if runs_dir != Path("runs") else []
    if name := study if study in listed() else compared(study, spec):
        return f"Its report: {shlex.join(['levelfield', 'report', name, '--effort', effort, *place])}"
    return f"It is a run of {study} at effort {effort}: `levelfield report`, of what that was run as, shows it."
