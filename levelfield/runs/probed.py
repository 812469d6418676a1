"""Names the files that hold the rows of probes, and says which of them a study shows of a run.

    probe_name(Slices())                                  # "probe-slices-3f2a9c.jsonl"
    shown, missing = probe_files(os.listdir(where), wanted, ())

Studies may share a run and measure it by probes of their own, or by one probe with other settings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from levelfield.spec import Probe, digest


def probe_name(probe: Probe) -> str:
    """Returns the name of the file that has the rows of a probe with these settings, in the folder of a run."""
    return f"probe-{probe.name}-{digest(probe)[:6]}.jsonl"


def probe_of(name: str) -> str:
    """Returns the name of the probe that a file of that name has rows of: the names of others may begin with it."""
    return name.removeprefix("probe-").rpartition("-")[0]


def probe_files(
    names: Sequence[str], wanted: Collection[str] | None, probes: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Returns which files of a run have rows of probes that a study may show, and which of its probes are missing.

    names: of all files of the run. wanted: those of the probes that the study measures the run by, None where it is not
    known; then `probes` are the names of probes that whoever completed the run measured it by. Of a probe that the
    study wants, files with other settings belong to other studies.
    """
    there = [name for name in names if name.startswith("probe-") and name.endswith(".jsonl")]
    if wanted is None:
        return there, [each for each in probes if each not in map(probe_of, there)]
    own = set(map(probe_of, wanted))
    shown = [name for name in there if name in wanted or probe_of(name) not in own]
    return shown, [name for name in wanted if name not in there]
