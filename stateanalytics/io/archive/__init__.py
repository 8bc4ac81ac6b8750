"""History that stays: a folder of Parquet files that is only ever added to.

::

    history/manifests/<source key>-<number>-<run>.json
    history/shards/<system>/<source key>/<ISO week>/<frame>-<digest>.parquet

A run archives one source. It writes the rows that earlier runs have not archived already,
each file beside its place and renamed, and last its manifest: what no manifest names does not
count. So two runs at once, and one that is killed, harm nobody, without a lock.
"""
