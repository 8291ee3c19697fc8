"""What people add to anchors: labels, which visits to label next, and a look at what anchors do."""
