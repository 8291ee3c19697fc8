"""The learners by name, and what they are compared with."""
