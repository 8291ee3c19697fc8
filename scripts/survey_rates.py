"""Count the tables of rates that the simulated department is drawn from, in visits of the national survey.

    python scripts/survey_rates.py FOLDER [--years 2016 2017 2018] [--out src/whatelse/simulate/survey]

FOLDER holds the emergency department files of the National Hospital Ambulatory Medical Care Survey as distributed
(ed2016_sas.zip …; public domain, National Center for Health Statistics) and `drug_labels.csv`. Every table is a CSV
file of counts, unweighted, whose first line says where they come from; `couplings.csv`, `shifts.csv` and
`residuals.csv` are fitted to such counts. What a cause is: one of the 23 conditions, by the codes of
`whatelse/annotators/emergency.yaml`, or one of the outside reasons of `simulate/department/outside.yaml`.
"""

from __future__ import annotations

import argparse
import csv
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyreadstat
import yaml
from scipy.optimize import minimize
from scipy.special import ndtri

from whatelse.simulate.rates import BANDS, FINE, MEASURES, RECORDED, band, condition_states, fine_band

PACKAGE = Path(__file__).parents[1] / "src" / "whatelse"
OTHER = "other complaint"
LEAST_DRUG = 60  # visits of three years that a drug must have to be in the tables
SHRINK = 30.0  # visits that a cause's shift in a measure is held back by
TRIPLES = 4  # visits that a triple of conditions must have to get a coupling of its own

DRUG_NAMES = {
    "dexamethasone topical": "dexamethasone",
    "fluticasone topical": "fluticasone",
    "oxymetazoline nasal": "oxymetazoline",
    "ringers lactated": "lactated ringers",
    "acetaminophen;butalbital;caffeine": "butalbital-acetaminophen-caffeine",
    "al hydroxide;mg hydroxide;simethicone": "aluminum hydroxide-magnesium hydroxide",
    "tetanus;diphth;pertuss (tdap) adult;adol": "tdap vaccine",
    "diphth;pertussis, acel;tetanus (obsolete)": "tdap vaccine",
    "tetanus-diphth toxoids (td) adult;adol": "tdap vaccine",
    "tetanus toxoid": "tdap vaccine",
    "diphtheria-tetanus toxoids (dt) ped": "tdap vaccine",
    "lidocaine;epinephrine;tetracaine": "let topical",
    "epinephrine topical;lidocaine;tetracaine topical": "let topical",
    "bacitracin;neomycin;polymyxin b topical": "bacitracin",
    "bacitracin topical": "bacitracin",
    "insulin regular": "insulin",
    "magnesium ion": "magnesium sulfate",
    "potassium replacement solutions": "potassium chloride",
    "multivitamin, prenatal": "prenatal vitamin",
    "budesonide nasal-formoterol": "budesonide-formoterol",
    "influenza virus vaccine, inactivated": "influenza vaccine",
    "iron preparations": "ferrous sulfate",
    "calcium replacement": "calcium gluconate",
    "omega-3 polyunsaturated fatty acids": "fish oil",
    "polyethylene glycol 3350": "polyethylene glycol",
}
NOT_DRUGS = re.compile(
    "miscellaneous|troponin|benzylpenicilloyl|^lipase|antiasthmatic|antacids|^glycerin|diatrizoate|lactobacillus"
)
CHRONIC = (
    *("ETOHAB", "ALZHD", "ASTHMA", "CANCER", "CEBVD", "CKD", "COPD", "CHF", "CAD", "DEPRN", "DIABTYP1", "DIABTYP2"),
    *("DIABTYP0", "ESRD", "HPE", "EDHIV", "HYPLIPID", "HTN", "OBESITY", "OSA", "OSTPRSIS", "SUBSTAB"),
)


@dataclass(frozen=True)
class Record:
    """One surveyed visit, as far as the tables need it."""

    age: int
    male: bool
    month: int
    hour: int
    conditions: tuple[int, ...]
    primary: str
    beside: tuple[str, ...]  # outside causes of the other diagnoses
    codes: tuple[tuple[str, str], ...]  # (cause, code)
    reasons: tuple[str, ...]
    drugs: tuple[str, ...]
    chronic: tuple[str, ...]
    measures: dict[str, float]  # of MEASURES, those that were recorded


class Causes:
    """Which cause a diagnosis or an external cause of injury belongs to."""

    def __init__(self) -> None:
        shipped = yaml.safe_load((PACKAGE / "conditions" / "emergency.yaml").read_text("utf-8"))["conditions"]
        outside = yaml.safe_load((PACKAGE / "simulate" / "department" / "outside.yaml").read_text("utf-8"))["reasons"]
        self.conditions = [c["name"] for c in shipped]
        self.diagnoses = [(p, i) for i, c in enumerate(shipped) for p in c["codes"]["icd10"]]
        self.injuries = [(p, i) for i, c in enumerate(shipped) for p in c["codes"].get("cause", ())]
        self.prefixes = sorted(((p, g) for g, v in outside.items() for p in v["icd10"]), key=lambda x: -len(x[0]))
        self.outside = list(outside)

    def condition(self, code: str, injury: bool = False) -> int | None:
        return next((i for p, i in (self.injuries if injury else self.diagnoses) if code.startswith(p)), None)

    def group(self, code: str) -> str:
        return next((g for p, g in self.prefixes if code.startswith(p)), OTHER)


def read(path: Path, causes: Causes, labels: dict[str, str], spoken: set[str]) -> list[Record]:
    """The visits of one survey year; reasons that nobody has words for become 'other'."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        member = next(m for m in archive.namelist() if m.lower().endswith(".sas7bdat"))
        file = Path(folder) / "visits.sas7bdat"
        file.write_bytes(archive.read(member))
        data, _ = pyreadstat.read_sas7bdat(file, output_format="dict")
    columns = {name.upper(): values for name, values in data.items()}
    size = len(columns["AGE"])
    return [_record({k: v[r] for k, v in columns.items()}, causes, labels, spoken) for r in range(size)]


def _record(row: dict[str, Any], causes: Causes, labels: dict[str, str], spoken: set[str]) -> Record:
    found = (str(row[f"DIAG{k}"]).strip("- ").upper() for k in range(1, 6))
    diagnoses = [d for d in found if d and not d.isdigit() and not d.startswith("ZZZ")]
    injuries = [c for k in range(1, 4) if (c := str(row[f"CAUSE{k}"]).strip("- ").upper()) and not c.isdigit()]
    by_diagnosis = [causes.condition(d) for d in diagnoses]
    by_injury = [causes.condition(c, injury=True) for c in injuries]
    cause_of = [
        causes.conditions[i] if i is not None else causes.group(d) for i, d in zip(by_diagnosis, diagnoses, strict=True)
    ]
    codes = [*zip(cause_of, diagnoses, strict=True)] + [
        (causes.conditions[i], c) for i, c in zip(by_injury, injuries, strict=True) if i is not None
    ]
    reasons = [f"{int(v):05d}" for k in range(1, 6) if (v := row[f"RFV{k}"]) and v > 0]
    drugs = {drug_name(labels.get(row[f"DRUGID{k}"], "")) for k in range(1, 31)} - {""}
    measures = {
        name: value for name, column in COLUMNS.items() if (value := measured(name, row.get(column))) is not None
    }
    time = str(row["ARRTIME"])
    return Record(
        age=int(row["AGE"]),
        male=row["SEX"] == 2,
        month=int(row["VMONTH"]),
        hour=int(time[:2]) if time[:2].isdigit() and int(time[:2]) < 24 else -1,
        conditions=tuple(sorted({i for i in (*by_diagnosis, *by_injury) if i is not None})),
        primary=cause_of[0] if cause_of else OTHER,
        beside=tuple(dict.fromkeys(c for c in cause_of[1:] if c not in causes.conditions and c != cause_of[0])),
        codes=tuple(dict.fromkeys(codes)),
        reasons=tuple(dict.fromkeys(r if r in spoken else "other" for r in reasons)),
        drugs=tuple(sorted(drugs)),
        chronic=tuple(c.lower() for c in CHRONIC if row.get(c) == 1),
        measures=measures,
    )


COLUMNS = {
    "temperature": "TEMPF",
    "pulse": "PULSE",
    "respirations": "RESPR",
    "systolic": "BPSYS",
    "diastolic": "BPDIAS",
    "saturation": "POPCT",
    "pain": "PAINSCALE",
    "triage": "IMMEDR",
    "ambulance": "ARREMS",
    "admitted": "ADMITHOS",
}
PLAUSIBLE = {
    "temperature": (930, 1075),
    "pulse": (30, 240),
    "respirations": (6, 80),
    "systolic": (50, 260),
    "diastolic": (20, 160),
    "saturation": (60, 100),
    "pain": (0, 10),
    "triage": (1, 5),
}


def measured(name: str, value: Any) -> float | None:
    """A measure that was recorded and can be true, else None."""
    if value is None or value != value:
        return None
    if name == "ambulance":
        return float(value == 1) if value in (1, 2) else None
    if name == "admitted":
        return float(value == 1)
    low, high = PLAUSIBLE[name]
    return float(value) if low <= value <= high else None


def drug_name(label: str) -> str:
    """The drug as the department names it, "" for what is not a drug."""
    name = label.lower()
    return "" if NOT_DRUGS.search(name) else DRUG_NAMES.get(name, name).replace(";", "-")


# ---- counting


def causes_of(record: Record, names: Sequence[str]) -> set[str]:
    """What a visit's looks are counted under: each of the 23 that it has, or else what it was for."""
    return {names[i] for i in record.conditions} or {record.primary}


def count(records: list[Record], causes: Causes) -> dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Every table: its header and its rows."""
    names = causes.conditions
    common = Counter(d for r in records for d in r.drugs)
    least = LEAST_DRUG * len(records) / 56_000
    drugs = {d for d, n in common.items() if n >= least}
    tables: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in HEADERS}
    for r in records:
        b, f, sex = band(r.age), fine_band(r.age), "M" if r.male else "F"
        given = [d for d in r.drugs if d in drugs]
        tables["people"][r.age, sex] += 1
        for i in r.conditions:
            tables["conditions"][names[i], f, sex] += 1
        if r.conditions:
            for i in r.conditions:
                tables["leading"][names[i], b, sex, r.primary] += 1
        else:
            tables["leading"]["none", f, sex, r.primary] += 1
        for g in r.beside:
            tables["beside"][r.primary, b, g] += 1
        for cause in {*causes_of(r, names), "any"}:
            tables["visits"][cause, b] += 1
            for k, reason in enumerate(r.reasons):
                tables["reasons"][cause, b, "first" if k == 0 else "other", reason] += 1
            for d in given:
                tables["drugs"][cause, b, d] += 1
            for flag in r.chronic:
                tables["chronic"][cause, b, flag] += 1
            tables["months"][cause, r.month] += 1
            if r.hour >= 0:
                tables["hours"][cause, r.hour] += 1
        for cause, code in r.codes:
            tables["codes"][cause, code] += 1
        for name in MEASURES:
            if (value := value_of(r, name, given)) is not None:
                tables["measures"][name, f, int(value)] += 1
    kept = Counter({key: n for key, n in tables["codes"].items() if key[0] in names or (n >= 3 and key[1][0] != "P")})
    tables["codes"] = kept
    rows = {
        name: (HEADERS[name], [(*key, n) for key, n in sorted(table.items(), key=_order)])
        for name, table in tables.items()
    }
    for name in GROUPED:
        rows[name] = (*HEADERS[name][:-2], "counts"), grouped(tables[name])
    pairs, fields = couplings(records, names)
    rows["couplings"] = (("conditions", "visits", "coupling"), pairs)
    rows["fields"] = (("fine_band", "sex", "condition", "field"), fields)
    rows["shifts"], rows["residuals"] = shifts(records, names, drugs)
    rows["patterns"] = patterns(records)
    return rows


HEADERS = {
    "people": ("age", "sex", "visits"),
    "conditions": ("condition", "fine_band", "sex", "visits"),
    "leading": ("condition", "band", "sex", "cause", "visits"),
    "beside": ("cause", "band", "outside", "visits"),
    "visits": ("cause", "band", "visits"),
    "reasons": ("cause", "band", "place", "reason", "visits"),
    "drugs": ("cause", "band", "drug", "visits"),
    "chronic": ("cause", "band", "flag", "visits"),
    "months": ("cause", "month", "visits"),
    "hours": ("cause", "hour", "visits"),
    "codes": ("cause", "icd10", "visits"),
    "measures": ("measure", "fine_band", "value", "visits"),
}


GROUPED = ("beside", "reasons", "drugs", "chronic")  # long tables: one line for each cause and band


def grouped(table: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows (…, "name:visits;name:visits"), the commonest first; what a single visit had is left out."""
    lines: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for (*key, name), n in table.items():
        if n >= 2:
            lines.setdefault(tuple(key), []).append((-n, name))
    return [
        (*key, ";".join(f"{name}:{-n}" for n, name in sorted(found)))
        for key, found in sorted(lines.items(), key=lambda item: tuple(map(str, item[0])))
    ]


def _order(item: tuple[tuple[Any, ...], int]) -> tuple[tuple[str, str], ...]:
    return tuple((type(v).__name__, f"{v:06d}" if isinstance(v, int) else str(v)) for v in item[0])


def value_of(record: Record, name: str, given: Sequence[str]) -> float | None:
    """One of MEASURES of a visit, None where it was not recorded."""
    if name == "drugs":
        return float(min(len(given), 14))
    if name == "reasons":
        return float(max(len(record.reasons), 1))
    return record.measures.get(name)


def leader(record: Record, names: Sequence[str]) -> str:
    """The one cause whose shift is taken off a visit's scores: its first condition, or else what it was for."""
    return names[record.conditions[0]] if record.conditions else record.primary


def couplings(records: list[Record], names: Sequence[str]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Log-linear couplings of pairs of conditions, and of triples that were seen, given age band and sex.

        P(y | band, sex) ~ exp(sum_i h_i(band, sex) y_i + sum_ij J_ij y_i y_j + sum_ijk K_ijk y_i y_j y_k)

    Maximum likelihood with a ridge on J about their mean and on K about 0, over all states of at most four conditions.
    J, K are the rows of couplings.csv and h those of fields.csv, where the condition was seen at all.
    """
    states = condition_states(len(names))
    cells = [(f, male) for f in range(len(FINE)) for male in (False, True)]
    seen: Counter[tuple[int, ...]] = Counter()
    for r in records:
        for a in range(len(r.conditions)):
            for b in range(a + 1, len(r.conditions)):
                seen[r.conditions[a], r.conditions[b]] += 1
                for c in range(b + 1, len(r.conditions)):
                    seen[r.conditions[a], r.conditions[b], r.conditions[c]] += 1
    m = len(names)
    sets = [(i, j) for i in range(m) for j in range(i + 1, m)]
    sets += [s for s, n in sorted(seen.items()) if len(s) == 3 and n >= TRIPLES]
    features = np.stack([states[:, s].all(axis=1) for s in sets], axis=1).astype(float)
    observed = np.array([seen[s] for s in sets], dtype=float)
    cell_of = np.array([cells.index((fine_band(r.age), r.male)) for r in records])
    size = np.bincount(cell_of, minlength=len(cells)).astype(float)
    alone = np.zeros((len(cells), m))
    for r, cell in zip(records, cell_of, strict=True):
        for i in r.conditions:
            alone[cell, i] += 1
    alone = alone + 0.02  # keeps h finite where nothing was seen
    on = states.astype(float)
    pair = np.array([len(s) == 2 for s in sets])

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        h, J = x[: alone.size].reshape(alone.shape), x[alone.size :]
        z = h @ on.T + features @ J
        top = z.max(axis=1, keepdims=True)
        p = np.exp(z - top)
        total = p.sum(axis=1, keepdims=True)
        p *= (size / total[:, 0])[:, None]
        away = J - np.where(pair, J[pair].mean(), 0.0)
        ridge = np.where(pair, 0.5, 1.5)
        value = -(alone * h).sum() - observed @ J + (size * (np.log(total[:, 0]) + top[:, 0])).sum()
        value += 0.5 * (ridge * away**2).sum()
        gradient_h = p @ on - alone
        gradient = p.sum(axis=0) @ features - observed + ridge * away
        return value, np.concatenate([gradient_h.ravel(), gradient])

    share = np.clip(alone / size[:, None], 1e-7, 0.5)
    start = np.concatenate([np.log(share / (1 - share)).ravel(), np.zeros(len(sets))])
    fit = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 500})
    J = fit.x[alone.size :]
    h = fit.x[: alone.size].reshape(alone.shape)
    pairs = [("+".join(names[i] for i in s), int(n), f"{w:.3f}") for s, n, w in zip(sets, observed, J, strict=True)]
    fields = [
        (f, "M" if male else "F", names[i], f"{h[cell, i]:.4f}")
        for cell, (f, male) in enumerate(cells)
        for i in range(m)
        if alone[cell, i] > 0.5
    ]
    return pairs, fields


def patterns(records: list[Record]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Which of RECORDED were recorded together, as a string of 1 and 0, by age band: gaps come in company."""
    seen = Counter((fine_band(r.age), "".join(str(int(v in r.measures)) for v in RECORDED)) for r in records)
    return ("fine_band", "recorded", "visits"), [(*key, n) for key, n in sorted(seen.items()) if n >= 2]


def shifts(records: list[Record], names: Sequence[str], drugs: set[str]) -> tuple[Any, Any]:
    """How far each cause moves each measure, in probits of the age band's distribution, and how the rest correlates.

    The shift is the mean over the measure's cuts t of probit(P(value <= t) expected from age) - probit(P(value <= t)
    among the cause's visits), the latter held back by SHRINK visits of the former. Residuals are normal scores less
    the shift of what the visit was for.
    """
    rows: list[tuple[Any, ...]] = []
    size = len(records)
    fine = np.array([fine_band(r.age) for r in records])
    coarse = np.array([band(r.age) for r in records])
    member = {cause: [] for r in records for cause in causes_of(r, names)}
    for k, r in enumerate(records):
        for cause in causes_of(r, names):
            member[cause].append(k)
    scores = np.full((size, len(MEASURES)), np.nan)
    for v, name in enumerate(MEASURES):
        values = np.array(
            [np.nan if (x := value_of(r, name, [d for d in r.drugs if d in drugs])) is None else x for r in records]
        )
        known = ~np.isnan(values)
        distinct = np.unique(values[known])
        cuts = distinct[:-1] if distinct.size <= 16 else np.unique(np.nanquantile(values, np.arange(0.05, 1, 0.05)))
        below = np.zeros((len(FINE), cuts.size))
        middle = np.zeros(size)
        for f in range(len(FINE)):
            here = known & (fine == f)
            below[f] = [(values[here] <= t).mean() for t in cuts]
            order = np.sort(values[here])
            left, right = np.searchsorted(order, values[here], "left"), np.searchsorted(order, values[here], "right")
            middle[here] = (left + right + 1) / 2 / (order.size + 1)
        scores[known, v] = ndtri(middle[known])
        for cause, who in sorted(member.items()):
            rows_of = np.array(who)
            for b in range(len(BANDS)):
                here = rows_of[known[rows_of] & (coarse[rows_of] == b)]
                everywhere = rows_of[known[rows_of]]
                if not everywhere.size:
                    continue
                general = _shift(values[everywhere], below[fine[everywhere]], cuts, SHRINK, 0.0)
                shift = _shift(values[here], below[fine[here]], cuts, SHRINK, general) if here.size else general
                if abs(shift) >= 0.005:
                    rows.append((cause, b, name, f"{shift:.2f}"))
                of = np.array([k for k in here if leader(records[k], names) == cause], dtype=int)
                scores[of, v] -= shift
    correlation = np.eye(len(MEASURES))
    for a in range(len(MEASURES)):
        for b in range(a):
            both = ~np.isnan(scores[:, a]) & ~np.isnan(scores[:, b])
            if both.sum() > 100 and scores[both, a].std() > 0 and scores[both, b].std() > 0:
                correlation[a, b] = correlation[b, a] = np.corrcoef(scores[both, a], scores[both, b])[0, 1]
    value, vector = np.linalg.eigh(correlation)
    correlation = (vector * np.clip(value, 0.02, None)) @ vector.T
    scale = np.sqrt(np.diag(correlation))
    correlation /= np.outer(scale, scale)
    table = [(MEASURES[a], MEASURES[b], f"{correlation[a, b]:.3f}") for a in range(len(MEASURES)) for b in range(a)]
    return (("cause", "band", "measure", "shift"), rows), (("measure", "with", "correlation"), table)


def _shift(values: np.ndarray, below: np.ndarray, cuts: np.ndarray, shrink: float, general: float) -> float:
    expected = np.clip(below.mean(axis=0), 1e-3, 1 - 1e-3)
    moved = 0.5 * (1 + np.array([_erf(x) for x in (ndtri(expected) - general) / np.sqrt(2)]))
    found = np.array([(values <= t).sum() for t in cuts])
    share = np.clip((found + shrink * moved) / (values.size + shrink), 1e-4, 1 - 1e-4)
    weight = expected * (1 - expected)
    return float(np.sum(weight * (ndtri(expected) - ndtri(share))) / weight.sum())


def _erf(x: float) -> float:
    from math import erf

    return erf(x)


def anchors(records: list[Record], folder: Path, causes: Causes) -> list[tuple[Any, ...]]:
    """How good reasons for visit and drugs are as anchors in the survey, by the definitions beside it."""
    import json

    defined = json.loads((folder / "conditions.json").read_text("utf-8"))
    rows = []
    for i, name in enumerate(causes.conditions):
        reasons, drugs = set(defined[name]["anchor_reasons"]), [d.lower() for d in defined[name]["anchor_drugs"]]
        fired = [bool(reasons & set(r.reasons)) or any(a in d for a in drugs for d in r.drugs) for r in records]
        true = [i in r.conditions for r in records]
        both = sum(a and t for a, t in zip(fired, true, strict=True))
        rows.append((name, sum(true), sum(fired), both))
    return rows


def write(tables: dict[str, tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]], out: Path, source: str) -> None:
    """One CSV file for each table, each saying where its numbers come from."""
    out.mkdir(parents=True, exist_ok=True)
    for name, (header, rows) in tables.items():
        fresh = out / f"{name}.csv.new"
        with fresh.open("w", encoding="utf-8", newline="") as stream:
            stream.write(f"# {source}\n")
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
        fresh.replace(out / f"{name}.csv")


def survey(folder: Path, years: Sequence[int]) -> tuple[list[Record], Causes]:
    """The visits of some survey years."""
    causes = Causes()
    spoken = set(yaml.safe_load((PACKAGE / "simulate" / "department" / "reasons.yaml").read_text("utf-8")))
    with (folder / "drug_labels.csv").open(encoding="utf-8-sig", newline="") as stream:
        labels = {row["code"]: row["label"] for row in csv.DictReader(stream)}
    return [r for year in years for r in read(folder / f"ed{year}_sas.zip", causes, labels, spoken)], causes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--years", type=int, nargs="+", default=[2016, 2017, 2018])
    parser.add_argument("--out", type=Path, default=PACKAGE / "simulate" / "survey")
    options = parser.parse_args()
    records, causes = survey(options.folder, options.years)
    tables = count(records, causes)
    tables["anchors"] = (("condition", "true", "fired", "both"), anchors(records, options.folder, causes))
    source = (
        f"Counted by scripts/survey_rates.py in {len(records):,} emergency visits of NHAMCS "
        f"{', '.join(map(str, options.years))} "
        "(National Center for Health Statistics, public domain), unweighted"
    )
    write(tables, options.out, source)
    print(f"wrote {len(tables)} tables from {len(records):,} visits to {options.out}")


if __name__ == "__main__":
    main()
