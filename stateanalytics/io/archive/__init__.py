"""History that stays: a folder of Parquet files.

::

    history/manifests/<source key>-<number>-<run>.json
    history/shards/<system>/<source key>/<ISO week>/<frame>-<digest>.parquet
    history/manifests/runs-<number>-<digits>.jsonl
    history/tables/<frame>/<ISO week>/<digest>.parquet

A run archives one source. It writes the rows that earlier runs did not archive, each file
under a temporary name that is then renamed, and last its manifest: a file that no manifest
names does not count. So neither two concurrent runs nor a killed one do harm. Compaction
(`compacting`) joins the files of many runs: rows in tables, manifests in one file.
"""
