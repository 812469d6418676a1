"""Measures every mixer by itself at 1K to 64K steps, beside its peers and the limits of this machine, in one run.

    python benchmarks/mixers.py --peers PEERS --targets --lengths 1024 4096 16384   # what the named targets need
    python benchmarks/mixers.py --peers PEERS                      # the rest and 64K; goes on from the rows there are
    python benchmarks/mixers.py --side ours --only rwkv --fresh    # a few anew
    python benchmarks/mixers.py --page-only                        # page and figure from the rows there are

Peers are packages, where they are installed, and checkouts in the folder PEERS; those that are absent are named and
left out:

    pip install transformers performer-pytorch linformer einops opt_einsum omegaconf scipy jaxtyping
    cd PEERS
    for peer in state-spaces/s4 IdoAmos/not-from-scratch i404788/s5-pytorch facebookresearch/mega state-spaces/mamba \\
        fla-org/flash-linear-attention HazyResearch/safari ctlllll/SGConv NX-AI/xlstm google-deepmind/recurrentgemma
    do git clone --depth 1 https://github.com/$peer; done

How it is measured: `measuring.py`. What: `mixer_cases.py` and `recurrence_cases.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measuring import add_options, collect, kept, read, write
from mixer_cases import CASES, LENGTHS
from mixer_page import DECISIVE, GROUPS, draw, page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, LENGTHS, "speed-mixers")
    parser.add_argument("--side", choices=["ours", "peers", "both"], default="both")
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/speed-mixers.png"))
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    parser.add_argument("--targets", action="store_true", help="only the groups that targets on the page name")
    options = parser.parse_args()
    sides = {"ours": lambda side: side == "ours", "peers": lambda side: side != "ours", "both": lambda side: True}
    chosen = [(i, c) for i, c in enumerate(CASES) if options.only in c.group and sides[options.side](c.side)]
    chosen = [(i, c) for i, c in chosen if not options.targets or c.group in DECISIVE]
    wanted = [(i, c, n) for n in sorted(options.lengths) for i, c in chosen if n in c.lengths]
    if not options.page_only:
        rows = kept(read(options.rows), wanted, options.fresh)
        collect("mixer_cases:CASES", wanted, options, rows, lambda found: write(options.rows, found, GROUPS))
    rows = read(options.rows)
    options.page.write_text(page(rows))
    draw(rows, options.figure)
    print(f"wrote {options.page} and {options.figure}")


if __name__ == "__main__":
    main()
