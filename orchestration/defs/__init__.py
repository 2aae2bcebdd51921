"""Your own assets, jobs, schedules and sensors: `dg scaffold defs` writes them, and every module is loaded.

A pipeline whose streams become assets in here is left out of Tidemill's own (`tidemill/orchestration/location.py`).
"""
