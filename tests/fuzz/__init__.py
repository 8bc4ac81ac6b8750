"""Mutated inputs through every reader and step, by the thousand, from one seed.

``python -m tests.fuzz --seed 7 --minutes 60`` runs until the time is up, in processes of
their own with bounded memory, and goes on where it was stopped. What must hold of each
input: it is read and every step gives a right result, or it is refused with an error of
ours, within `worker.LIMIT_S` of processor time. Input ``i`` of seed ``s`` is the same on
every machine: ``python -m tests.fuzz --seed 7 --only 1234 --keep folder`` runs it again.

`seeds` makes small inputs of every format, `mutations`, `stores` and `archives` change them,
`targets` is the table that joins the two with what is run (`steps`), `counting` counts rows
against SQLite itself, `campaign` and `worker` are the two processes.
"""
