"""Cohorts, models and tags on Apache Spark. The computations are those of the local engine.

    from whatelse import spark
    visits = spark.read_visits(df, {"id": "visit no"})
    cohort = spark.build_cohort(visits, out="cohort")
    spark.fit(cohort).save("model")
    tags = spark.tag(df, "model")

Needs the extra `spark` and Java 17. See docs/scale.md.
"""

from whatelse.spark.building import build_cohort
from whatelse.spark.dataset import SparkCohort
from whatelse.spark.fitting import fit
from whatelse.spark.reading import read_visits
from whatelse.spark.session import session
from whatelse.spark.tagging import tag

__all__ = ["SparkCohort", "build_cohort", "fit", "read_visits", "session", "tag"]
