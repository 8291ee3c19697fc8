"""CDS Hooks 2.0: cards in the EHR while the patient is there. `hooks.py` answers; the rest is what it needs."""
