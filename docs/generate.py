"""Pages that are made, not written: gallery, contributing, llms.txt, groups of the API. Run by `make docs`.

python docs/generate.py
"""  # noqa: E501

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
MADE = HERE / "_generated"
GROUPS = {  # of a package: its names in the order of the API reference; those not here come last
    "graphtheory.nn": {
        "Graph layers": "SPDTransformerConv TransformerConv GATConv GATv2Conv GCNConv GPSConv "
        "ResGatedGraphConv GatedGCNConv",
        "Attention": "Attention Block BucketBias JointBias attention_maps AttentionMap",
        "Encodings, features, readout": "WalkEncoding LaplacianEncoding PathEncoding "
        "DegreeEmbedding NodeEncoder CategoricalEncoder SparseFeatures feature_encoder "
        "GraphReadout",
    },
    "graphtheory.vision.nn": {
        "Fewer tokens": "Merge Keep Fuse SemanticTokens decreasing unmerge",
        "Patches and positions": "PatchEmbedding ConvStem PositionEmbedding LearnedPositions "
        "SinusoidalPositions PeriodicPositions",
        "Graphs of patches": "Grapher GraphBlock NearestNeighbors Message MaxRelative EdgeMessage "
        "SageMessage AttentionMessage",
        "Pooling and heads": "AveragePool MaxPool MaskPool MultiScale Centers LearnedCenters "
        "MLPHead TransformerHead",
    },
    "graphtheory.ops": {
        "Attention": "attention additive_attention topk_attention varlen_attention "
        "varlen_neighborhood BucketedBias EdgeFeatures",
        "Parts of attention": "edge_dot additive_score edge_softmax aggregate gated_sum relu_sum",
        "Backends": "explain Explanation backend_names",
    },
    "graphtheory.patterns": {
        "Neighborhoods": "KHop AtDistance DilatedHops AddSelf Compose Window Expander VirtualNode",
        "Samples": "Sample GraphSAGE FastGCN LADIES UniformNodes DegreeGroups",
        "Weights": "SymmetricNormalize MeanNormalize",
        "By attention scores": "TopK AllSources attention_logits",
    },
    "graphtheory.lab.train": {
        "One call": "fit TrainerOptions AdamOptions FitResult predict write_predictions",
        "Nodes": "NodeTask FullGraph SampledGraph SampledLayers NodeBatch",
        "Graphs": "GraphTask GraphSets",
        "Images": "ImageTask ImageData Recipe Augmentation ImageBatch",
        "Checkpoints": "load_parameters read_checkpoint CheckpointError",
    },
}


def main() -> None:
    """Write docs/_generated."""
    MADE.mkdir(exist_ok=True)
    (MADE / "gallery.md").write_text(gallery(), encoding="utf-8")
    (MADE / "contributing.md").write_text(contributing(), encoding="utf-8")
    (MADE / "llms.txt").write_text(llms(), encoding="utf-8")
    for package in GROUPS:
        (MADE / f"{package}.txt").write_text(reference(package), encoding="utf-8")


def reference(package: str) -> str:
    """The public names of a package in groups, as directives."""
    module = import_module(package)
    groups = {title: names.split() for title, names in GROUPS[package].items()}
    known = {name for names in groups.values() for name in names}
    groups["Others"] = [name for name in module.__all__ if name not in known]
    out = [f"## `{package}`", f"```{{eval-rst}}\n.. automodule:: {package}\n```"]
    for title, names in groups.items():
        lines = []
        for name in names:
            value = getattr(module, name)
            kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
            lines.append(f".. auto{kind}:: {package}.{name}")
            lines += ["   :members:"] * (kind == "class") + [""]
        out += [f"### {title}", "```{eval-rst}\n" + "\n".join(lines) + "```"] if names else []
    return "\n\n".join(out) + "\n"


def contributing() -> str:
    """CONTRIBUTING.md as a page, its links to pages as the site has them."""
    text = (HERE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](../")


def gallery() -> str:
    """Every figure: picture, summary, claims and verdicts, command."""
    from graphtheory.papers.figure import figures

    pages = sorted((HERE / "results").glob("*.md"))
    said = verdicts("\n".join(page.read_text(encoding="utf-8") for page in pages))
    quick, full, whole = (
        found(RESULTS / f"{form}.csv", "processor time") for form in ("quick", "full", "whole")
    )
    share = found(RESULTS / "whole.csv", "share")
    others = found(RESULTS / "whole.csv", "others", column="median")
    rows = sum(one.count for one in share.values())
    same = sum(round(one.value * one.count) for one in share.values())
    out = [
        "# Gallery of figures",
        "This page has every figure and table that has a command, with the picture of the "
        "committed run and the outcome of each claim. [The results](../results.md) explain the "
        "outcomes. The rows, with medians, quantiles, versions and commit, are in "
        '`benchmarks/results`. "Runs" says how many settings are trained or measured in full, and '
        "how many with `--quick`. Times are processor times on one thread, measured by `python "
        'benchmarks/figure_times.py`. "About" means that a few settings were timed, and their mean '
        "was multiplied by the number of settings. Some figures were run a second time in full, "
        'with later code and often on another processor. "Second run" says how many of their '
        "committed rows agree with that run to rounding: "
        f"{same:,} of {rows:,} rows of {len(share)} figures.",
    ]
    for name, figure in figures().items():
        out.append(f"## {figure.name}\n\n{figure.summary[0].upper()}{figure.summary[1:]}.")
        told = said.get(name) or said.get(short(name), [])
        out += [f"- Claim: {claim.rstrip('.')}. Outcome: {outcome}" for claim, outcome in told]
        out.append(f"```text\n{command(figure)}\n```")
        out.append(runs(figure, whole.get(name), full.get(name), quick.get(name)))
        out += agreement(share.get(name), others.get(name))
        out += [
            f"![{figure.name}](../../benchmarks/results/{p.name})"
            for p in pictures(name, figures())
        ]
        out += [] if committed(name, figures()) else ["Not run in full, so without committed rows."]
    return "\n\n".join(out) + "\n"


def command(figure) -> str:
    """What makes it again."""
    base = f"graphtheory reproduce {figure.id}"
    if figure.data is None:
        return base
    root = (
        ""
        if figure.data.default in ("digits", "core-distance", "core-neighborhood")
        else " --root DATA"
    )
    return f"{base} --dataset {figure.data.default}{root}"


class Found(NamedTuple):
    """What a row of `benchmarks/figure_times.py` has: a mean or median, and of how many."""

    value: float
    count: int


def found(path: Path, name: str, column: str = "value") -> dict[str, Found]:
    """Figure -> its row of a name that begins so."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["name"].startswith(name)]
    figure = [row["parameters"].split("; ")[0].split("=")[1] for row in rows]
    values = [Found(float(row[column]), int(row["repeats"])) for row in rows]
    return dict(zip(figure, values, strict=True))


def runs(figure, whole: Found | None, full: Found | None, quick: Found | None) -> str:
    """How large it is: cells of the full and of the quick form, and their times."""
    dataset = figure.data.default if figure.data else ""
    many, few = (len(figure.settings(dataset, quick=small).cells()) for small in (False, True))
    told = f"Runs: {many}"
    if whole is not None:
        told += f" in {duration(whole.value)}"
    elif full is not None:
        told += f", about {duration(full.value * many)} ({full.count} timed)"
    else:
        told += " (not timed)"
    return f"{told}. With `--quick`: {few}" + (f" in {duration(quick.value)}." if quick else ".")


def agreement(share: Found | None, others: Found | None) -> list[str]:
    """How its rows came out when it was run once more."""
    if share is None:
        return []
    agree = round(share.value * share.count)
    told = f"Second run: {agree} of {share.count} rows agree to rounding"
    if agree < share.count and others is not None:
        told += f"; the others differ by {100 * others.value:.2g} % of the largest value (median)"
    return [f"{told}."]


def duration(seconds: float) -> str:
    """In the unit that a reader would take."""
    sizes = {"h": 3600, "min": 60, "s": 1}
    unit = next((unit for unit, size in sizes.items() if seconds >= 1.5 * size), "s")
    number = seconds / sizes[unit]
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def committed(name: str, every) -> list[Path]:
    """Files of rows of a figure, on every data set."""
    longer = [other for other in every if other.startswith(f"{name}-")]
    return [
        path
        for path in sorted(RESULTS.glob(f"{name}*.csv"))
        if path.stem == name or path.stem.startswith(f"{name}-")
        if not any(path.stem == o or path.stem.startswith(f"{o}-") for o in longer)
    ]


def pictures(name: str, every) -> list[Path]:
    """Pictures beside those rows."""
    return [p.with_suffix(".png") for p in committed(name, every) if p.with_suffix(".png").exists()]


def short(name: str) -> str:
    """The number that the tables of docs/results/ use: 3.3a for fig-3-3a, B.1 for table-b-1."""
    _, *rest = name.split("-")
    return ".".join(part.upper() if len(part) == 1 else part for part in rest)


def verdicts(text: str) -> dict[str, list[tuple[str, str]]]:
    """Number of a figure -> its (claim, outcome), from rows `| figure | claim | outcome |`."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in _rows(text):
        number = row[0].partition(",")[0]
        found.setdefault(number, []).append((row[1], row[2]))
    return found


def _rows(text: str) -> Iterator[list[str]]:
    inside, last = False, ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells == ["figure", "claim", "outcome"])
        if inside and len(cells) == 3 and cells[0] != "figure" and set(cells[0]) != {"-"}:
            last = cells[0] or last
            yield [last, *cells[1:]]


def llms() -> str:
    """A list of every page with its first sentence, for readers that are programs."""
    out = [
        "# graphtheory",
        "> Fast sparse attention for PyTorch Geometric. A `Neighborhood` says which nodes each "
        "node aggregates from, `ops` has the differentiable operations, `patterns` choose edges, "
        "and `nn` has layers that are called as PyG's.",
    ]
    for folder, title in (("", "Pages"), ("tutorials", "Tutorials"), ("howto", "How to"),
                          ("results", "Results"), ("api", "API reference"),
                          ("_generated", "Generated")):  # fmt: skip
        pages = sorted((HERE / folder).glob("*.md"))
        if pages:
            lines = (f"- [{_title(p)}]({_address(p)}): {_lead(p)}" for p in pages)
            out.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(out) + "\n"


def _address(page: Path) -> str:
    """The page as Markdown; of the API reference, which Sphinx makes of docstrings, as HTML."""
    return str(page.relative_to(HERE).with_suffix(".html" if page.parent.name == "api" else ".md"))


def _title(page: Path) -> str:
    return next(
        line[2:] for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "# "
    )


def _lead(page: Path) -> str:
    """The first sentences of the first paragraph of prose, on one line."""
    for block in page.read_text(encoding="utf-8").split("\n\n"):
        if re.match(r"[A-Z`\[*]", block):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            first, *rest = re.split(r"(?<=[.:])\s+(?=[A-Z`*])", text)
            while rest and len(first) + len(rest[0]) < 250:
                first += f" {rest.pop(0)}"
            return first
    return ""


if __name__ == "__main__":
    main()
