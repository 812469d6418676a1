"""Holds the probes, measurements on a trained model: one file each.

levelfield probe extrapolation RUN_ID
"""

from __future__ import annotations

from levelfield.probes.depths import Depths
from levelfield.probes.effective_context import EffectiveContext
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.kernels import Kernels
from levelfield.probes.locality import Locality
from levelfield.probes.ranges import Ranges
from levelfield.probes.remedies import Remedies
from levelfield.probes.slices import Slices
from levelfield.spec import Probe, UserError, closest

PROBES: tuple[type[Probe], ...] = (Locality, EffectiveContext, Slices, Kernels, Extrapolation, Depths, Ranges, Remedies)


def find(name: str) -> Probe:
    """Returns the probe with its usual settings. Raises UserError for an unknown name."""
    known = {probe.name: probe for probe in PROBES}
    if name not in known:
        raise UserError(f"No probe is called '{name}': {closest(name, list(known))}")
    return known[name]()
