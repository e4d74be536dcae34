"""Reads the folders of runs: pages, tables and figures about them."""
