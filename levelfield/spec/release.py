"""Says which release of an installed package a module belongs to, which tells what its code does.

release("torch.nn")     # "torch==2.13.0"
"""

from __future__ import annotations

from functools import cache


@cache
def release(module: str) -> str:
    """Returns name and version of what installed a module, without the part that tells builds apart; "" of nothing."""
    import importlib.metadata as installed  # takes 20 ms, and most runs have no class of another package

    def version(distribution: str) -> str:
        try:
            return installed.version(distribution).partition("+")[0]
        except installed.PackageNotFoundError:
            return ""

    top = module.partition(".")[0]
    owners = [top] if version(top) else installed.packages_distributions().get(top, [])
    return " ".join(f"{owner}=={version(owner)}" for owner in sorted(set(owners)))
