"""The workbench: a cohort, its records and the files a curator edits, with every action of the page as a function."""
