"""Reads what can be read of a damaged SQLite store, in a process of its own.

`io.sqlite` starts `run.main` there when a store is damaged and ``on_error="salvage"``
was asked for. Indexes are never trusted: only the leaves of tables are followed, each
page is held against the file format before it is believed, and every row goes through
SQLite into a clean store by itself if need be. What was lost is named, not guessed at.

Only the standard library may be imported here.
"""
