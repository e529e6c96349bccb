"""Checks the whole installation: `duly doctor` and `Duly.doctor()`.

One module per area. A check is a small function that takes what was read and returns findings; what is read is named in
`store/sql/doctor.sql`, what mends is in `store/ops_repair.py`.
"""
