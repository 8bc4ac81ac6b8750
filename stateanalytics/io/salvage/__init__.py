"""Reads what can be read of a damaged SQLite store, in a process of its own.

`io.sqlite` starts `repair.main` there for a damaged store and ``on_error="salvage"``. Indexes
are never trusted: only the leaves of tables are followed, each page is checked against the file
format, and its rows are written into a clean store. What was lost is reported, not guessed.

Only the standard library may be imported here.
"""
