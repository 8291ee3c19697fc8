"""The table of the tutorial: visits of a small ward that never existed, written as hospitals export them.

    python make_table.py visits.csv                  the table: semicolons, Latin-1, decimal commas, numbers for sex
    python make_table.py --review list.csv out.csv   plays the two nurses who read charts: fills in a list of visits
                                                     that 'whatelse anchors label-next' made

Everything is drawn with one seed, so that the nurses know what the table's maker knew.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

VISITS = 4000
# condition: how common, its anchor and how often that is written, what else its visits say, vitals it moves
CONDITIONS = {
    "hip fracture": (
        0.10, "hip fx", 0.45,
        ["fell at home", "leg shortened and rotated", "cannot bear weight", "found on the floor"], {},
    ),
    "pneumonia": (
        0.14, "pna", 0.40,
        ["productive cough", "crackles right base", "short of breath", "rigors at home"],
        {"temp": 1.4, "spo2": -4, "pulse": 14},
    ),
    "heart failure": (
        0.12, "chf", 0.50,
        ["leg swelling", "orthopnea", "weight gain", "short of breath"], {"spo2": -3},
    ),
    "delirium": (
        0.11, "delirium", 0.35,
        ["pulling at lines", "not oriented", "daughter says not himself", "sleepy then agitated"], {},
    ),
    "urinary infection": (
        0.15, "uti", 0.40,
        ["burning urination", "cloudy urine", "suprapubic tenderness", "urinary frequency"], {"temp": 0.8, "pulse": 8},
    ),
    "dehydration": (
        0.12, "dehydrated", 0.40,
        ["dry mucous membranes", "poor oral intake", "dizzy on standing", "vomiting for two days"],
        {"pulse": 12, "sys": -15},
    ),
}  # fmt: skip
TOGETHER = {
    ("urinary infection", "delirium"): 0.35,
    ("hip fracture", "delirium"): 0.2,
    ("pneumonia", "dehydration"): 0.2,
}
ALWAYS = [
    "seen in café of the ward",
    "lives alone",
    "arrived with neighbour",
    "history of hypertension",
    "no allergies",
]


def patients() -> list[tuple[str, dict[str, bool], dict[str, str]]]:
    """(id, conditions, cells) of every visit."""
    rng, after = random.Random(2024), random.Random(7)
    out = []
    for number in range(1, VISITS + 1):
        true = {name: rng.random() < spec[0] for name, spec in CONDITIONS.items()}
        for (cause, effect), chance in TOGETHER.items():
            true[effect] = true[effect] or (true[cause] and rng.random() < chance)
        phrases, shifts = [], {"temp": 0.0, "spo2": 0.0, "pulse": 0.0, "sys": 0.0}
        for name, (_, anchor, written, signs, moved) in CONDITIONS.items():
            if true[name]:
                phrases += [sign for sign in signs if rng.random() < 0.55]
                phrases += [anchor] if rng.random() < written else []
                shifts = {key: value + moved.get(key, 0.0) for key, value in shifts.items()}
            else:
                phrases += [f"no {signs[0]}"] if rng.random() < 0.08 else []
                phrases += [sign for sign in signs if rng.random() < 0.03]
                phrases += [f"r/o {anchor}"] if rng.random() < 0.01 else []
        phrases += rng.sample(ALWAYS, 2)
        rng.shuffle(phrases)
        temp = rng.gauss(36.8, 0.4) + shifts["temp"] * rng.random() * 1.5
        cells = {
            "Visit No": f"W{number:05}",
            "Age": str(round(rng.triangular(60, 99, 82))),
            "Gender": rng.choice("12"),
            "Complaint": rng.choice(["unwell", "fall", "confused", "weak", "short of breath", "fever"]),
            "Nurse note": ". ".join(phrases),
            "ESI": str(rng.choice([2, 3, 3, 3, 4])),
            "Temp": "n/a" if rng.random() < 0.05 else f"{temp:.1f}".replace(".", ","),
            "Pulse": str(round(rng.gauss(82, 11) + shifts["pulse"])),
            "SpO2": f"{min(100, round(rng.gauss(96.5, 1.5) + shifts['spo2']))}%",
            "BP": f"{round(rng.gauss(138, 18) + shifts['sys'])}/{round(rng.gauss(76, 9))}",
            "Bed": f"B{rng.randint(1, 40):02}",
            "Insurer": rng.choice(["Général", "Städtische", "other"]),
            "Disposition": "admitted" if after.random() < 0.2 + 0.6 * true["hip fracture"] else "home",
        }
        out.append((cells["Visit No"], true, cells))
    return out


def write_table(path: Path) -> None:
    rows = [cells for _, _, cells in patients()]
    with path.open("w", newline="", encoding="latin-1") as stream:
        table = csv.DictWriter(stream, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(rows)
    print(f"wrote {len(rows):,} visits to {path}")


def review(listed: Path, out: Path) -> None:
    truth = {visit: true for visit, true, _ in patients()}
    with listed.open(newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row |= {name: str(int(on)) for name, on in truth[row["visit"]].items()}
    with out.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    print(f"{len(rows):,} charts were read; the labels are in {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--review", action="store_true")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    review(*given.files) if given.review else write_table(given.files[0])
