"""Further anchors for conditions: what stands in an anchor's place, what it would be worth, and writing it down."""
