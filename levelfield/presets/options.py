"""What a comparison can be asked for, on the command line and in Python alike.

    Options(tasks=("listops",), seeds=5, steps=4_000)

What is left out is as `small.SIZES` has it for the effort.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from levelfield.presets.arguments import Count, Names, Rate
from levelfield.spec import UserError

MOST = {"seeds": 1_000, "steps": 100_000_000, "width": 65_536, "depth": 1_000}


@dataclass(frozen=True)
class Options:
    """The arms of a comparison and what they share. Raises UserError for a number that no run can have.

    Args:
        tasks: names of tasks (default: listops recall pathfinder)
        protocols: names of protocols (default: scratch spt_masked)
        baselines: names of mixers (default: attention s4 conv)
        seeds: runs of each arm (default: as the effort affords, 2 at minutes)
        steps: optimizer steps of each run, all phases together (default: as the effort affords, 1,000 at minutes)
        width: features of a step in your model (default: as the effort affords, 48 at minutes); baselines get the width
            that gives them as many parameters
        depth: blocks of each model (default: as the effort affords, 2 at minutes)
        lr: learning rate of every arm (default: as the effort affords, 0.002 at minutes)
    """

    tasks: Names = ()
    protocols: Names = ()
    baselines: Names = ()
    seeds: Count = None
    steps: Count = None
    width: Count = None
    depth: Count = None
    lr: Rate = None

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            given = getattr(self, name)
            if given is not None and not 1 <= given <= most:
                raise UserError(f"{given:,} {name} cannot be: give a whole number of {name} from 1 to {most:,}.")
        if self.lr is not None and not 0 < self.lr < 1e3:
            raise UserError(f"lr={self.lr} cannot train: give a learning rate above 0, such as 0.001.")

    @property
    def numbers(self) -> dict[str, int | float]:
        """What was given of sizes, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)[3:]}
        return {name: value for name, value in found.items() if value is not None}


USUAL = Options()
