"""Clinical knowledge: concepts, drugs and conditions as YAML that a clinician can read, and as values.

`concepts/*.yaml` hold what a record can mention, `drugs.yaml` drugs and their classes, `conditions/*.yaml` the
conditions: how common, how dangerous, with which findings, risks, drugs and codes. See docs/knowledge.md.
"""

from whatelse.knowledge.base import Knowledge, load_knowledge
from whatelse.knowledge.entries import BANDS, Concept, Condition, Drug, age_band

__all__ = ["BANDS", "Concept", "Condition", "Drug", "Knowledge", "age_band", "load_knowledge"]
