"""What labels teach on top of what anchors taught, part by part; `learner.py` puts them in order."""
