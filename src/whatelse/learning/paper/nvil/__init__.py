"""The paper's learner: neural variational inference with anchors (PyTorch, an extra)."""
