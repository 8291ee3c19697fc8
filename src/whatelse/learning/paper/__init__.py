"""The learners of the paper: moments and NVIL."""
