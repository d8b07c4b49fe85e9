"""Exhibit A: attention, on the stand."""
