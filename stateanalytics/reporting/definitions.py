"""What each number of a report means, once: for its last section and for the pages."""

from __future__ import annotations

DEFINITIONS = (
    (
        "Run",
        "One session, of every system. What only repeats it is not counted again: branches, "
        "the last turn of a session, and the executions, steps and tool calls that "
        "turns consist of. Earlier turns of a session are no runs, but work that can fail.",
    ),
    (
        "In the window",
        "By the moment it ended, else started, else was created: from the first moment up to, "
        "but without, the last. Work that is open at as-of belongs to every window that ends "
        "after it began.",
    ),
    (
        "Open",
        "Not ended, by a status that is understood. Its state is the one at as-of, not at the "
        "window's end: how it stood then is not recorded.",
    ),
    (
        "Left out",
        "Sessions without a status or with an unknown one (legacy), mirrored from a transcript, "
        "imported from files, or without any time. Counted and named, never part of a share.",
    ),
    (
        "Completed",
        "Outcome completed, of the runs that ended. Whether it delivered is said beside it.",
    ),
    ("Timed out", "Outcome timed out, of the runs that ended. A bound, not an error."),
    ("Unresolved", "Open runs whose severity is critical or warning, of the open runs."),
    (
        "Cause",
        "One pair of invocation and reason code among failed and timed-out rows. The headline "
        "counts those of runs, the sections on failures those of rows of every type. Where one "
        "of the two was not recorded the session itself stands in, so that rows without an "
        "invocation are not folded into one. Shares of codes and clusters are of causes.",
    ),
    (
        "Interval",
        "Wilson's 95 % interval of a share. It takes runs to be independent; those of one "
        "fan-out are not, so it is rather too narrow.",
    ),
    (
        "Duration",
        "End minus start of runs that started in the window; where sessions also "
        "wait for people, of every turn. A run that is still going, or that "
        "its time limit ended, gives a lower bound. Ends that were repaired, or written by an "
        "observer, give none.",
    ),
    (
        "Change",
        "Difference to the window that stands in the report's note, by default as long and right "
        "before. A difference of shares has Newcombe's 95 % interval; where that holds zero, "
        "chance may have made it. How open work stood then is not recorded.",
    ),
    (
        "Open at the end of a step",
        "Runs that had begun and not ended at that moment, of all that rates count.",
    ),
    (
        "Slow",
        "Open, or taken, for longer than the policy's limit. Says nothing about silence: that is "
        "stalled.",
    ),
)


def as_markdown() -> str:
    """The definitions as a page."""
    rows = "\n".join(f"| {term} | {meaning} |" for term, meaning in DEFINITIONS)
    return (
        "# What each number means\n\nThe same words stand at the end of every report. "
        "Made from the code by `make docs`.\n\n| term | meaning |\n|---|---|\n" + rows + "\n"
    )
