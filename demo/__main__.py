"""Run the tour: ``python -m demo`` from the root of the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tqdm import tqdm

from . import backend, photograph, problems
from .jobs import run, table

PICTURE = Path(__file__).parent / "output" / "photograph.png"
TOLERANCE = 1e-5


def main() -> int:
    where = backend.choose()
    rng = np.random.default_rng()
    print(where.describe())

    reports = []
    with tqdm(total=len(problems.CONVOLUTIONS) + 3, unit="operation") as progress:

        def step(job):
            progress.set_postfix_str(job.name.splitlines()[0])
            report, result = run(job, where)
            reports.append(report)
            progress.update()
            return result

        for problem in problems.CONVOLUTIONS:
            step(problem.job(where, rng))
        step(problems.fused(where, rng))
        image = photograph.photograph()
        enlarged = step(photograph.enlargement(where, image))
        blurred = step(photograph.blur(where, enlarged))

    photograph.save(PICTURE, image, enlarged, blurred)
    print(f"\n{table(reports, where.peer)}\n")
    print("ms: the median; error: ‖result - exact‖ / ‖exact‖ against float64.")
    print(f"{where.peer}, ms: the same work by its ndimage, which knows no channels. KernelBench's")
    print("problems take it the time of one output channel of the convolution, times their number.")
    print("×: that time over ours.")
    print(f"The photograph is in {PICTURE}.")

    wrong = [report.name for report in reports if not report.error <= TOLERANCE]
    for name in wrong:
        print(f"error above {TOLERANCE}: {name.splitlines()[0]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
