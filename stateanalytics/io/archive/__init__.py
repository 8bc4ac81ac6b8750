"""History that stays: a folder of Parquet files that is only ever added to.

::

    history/manifests/<source key>-<number>-<run>.json
    history/shards/<system>/<source key>/<ISO week>/<frame>-<digest>.parquet

A run archives one source. It writes the rows that earlier runs did not archive, each file
under a temporary name that is then renamed, and last its manifest: a file that no manifest
names does not count. So neither two concurrent runs nor a killed one do harm, without a lock.
"""
