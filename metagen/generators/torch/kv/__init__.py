"""Keys and values of running rows: a dense tail for each row, behind a prefix that rows share.

A model calls `store`. `chains` says which segments a row reads before its tail; `segments` reads long ones in place,
`slots` short ones side by side; `regions` says where tails lie, and `tails` reads them.
"""
