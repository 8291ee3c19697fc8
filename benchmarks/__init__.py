"""Speed and quality side by side with peers, as ratios measured in one run."""
