"""How much slower one piece of work is than another, on this machine, at this moment."""

import time


def times_as_slow(work, large, small, *, most=0.0, n_runs=3):
    """Time of ``work(large)`` over that of ``work(small)``, each the least of several runs.

    Both are measured in turns, so that a busy machine is busy for both; no more of them
    than it takes to be below ``most``.
    """
    least = [float("inf"), float("inf")]
    for _ in range(n_runs):
        for which, given in enumerate((large, small)):
            begun = time.perf_counter()
            work(given)
            least[which] = min(least[which], time.perf_counter() - begun)
        if least[0] / least[1] < most:
            break
    return least[0] / least[1]
