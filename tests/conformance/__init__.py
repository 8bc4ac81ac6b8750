"""What the real systems decide, recomputed: proof that their words are understood.

No command, report or public name needs these rules. They are here because the rows of the
oracles (`tests.oracles`) were made by the systems themselves, and only the whole of what a
system decides can be compared with them.
"""
