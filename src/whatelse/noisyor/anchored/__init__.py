"""The default learner where the noisy-or does not hold, part by part; `learner.py` puts them in order."""
