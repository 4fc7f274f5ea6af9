"""The demo's result as a table for people."""

from rich.table import Table

from torch_mtl4.demo.setups import SETUPS

MB = 1e6
CAPTION = (
    "(*) resident, beyond what Python and the libraries hold before loading. (**) attention modules, linear layers. "
    "Greedy tokens: the common prefix with the baseline for each prompt."
)


def cells(result: dict) -> dict:
    """Returns titles, rows and caption of one model: a row a measure, a column a setup, the baseline first."""
    setups = result["setups"]
    baseline, *_ = setups.values()
    return {
        "titles": [SETUPS[setup].title for setup in setups],
        "rows": [[label, *(cell(column, baseline) for column in setups.values())] for label, cell in _rows(result)],
        "caption": CAPTION,
    }


def table(result: dict) -> Table:
    """Returns the table of one model, which `cells` has filled."""
    title = f"{result['name']} ({result['kind']}, {result['dtype']}; licence: {result['licence']})"
    out = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=result["table"]["caption"],
        caption_justify="left",
    )
    out.add_column("")
    for heading in result["table"]["titles"]:
        out.add_column(heading, justify="right")
    for row in result["table"]["rows"]:
        out.add_row(*row)
    return out


def _rows(result: dict) -> list:
    effort = result["effort"]
    size = [
        ("weights", _bytes("weight_bytes")),
        ("peak memory running (*)", _bytes("run_peak", beyond="libraries")),
        ("peak memory loading (*)", _bytes("load_peak", beyond="libraries")),
        ("on our kernels (**)", lambda column, _: _kernels(column["kernels"])),
    ]
    if result["kind"] == "encoder":
        return [
            ("speed, tokens/s", _speed("embed")),
            ("cosine, mean (min)", _agreement(lambda a: f"{a['cosine_mean']:.5f} ({a['cosine_min']:.5f})")),
            ("same nearest neighbour", _agreement(lambda a: f"{a['same_neighbour']:.0%} of {a['texts']}")),
            *size,
        ]
    return [
        ("perplexity", lambda column, _: f"{column['perplexity']:.2f}"),
        ("same likeliest token", _agreement(lambda a: f"{a['top_token']:.1%} of {a['positions']}")),
        ("same greedy tokens", _agreement(_greedy)),
        (f"prefill of {effort['prefill_tokens']}, tokens/s", _speed("prefill")),
        ("decode, tokens/s", _speed("decode")),
        *size,
    ]


def _kernels(counts: dict | None) -> str:
    return "-" if counts is None else "{} of {}, {} of {}".format(*counts["attention"], *counts["weights"])


def _greedy(agreement: dict) -> str:
    return f"{', '.join(map(str, agreement['greedy_prefix']))} of {agreement['greedy_length']}"


def _agreement(text):
    return lambda column, _: text(column["agreement"]) if "agreement" in column else "-"


def _bytes(key: str, beyond: str | None = None):
    def size(column: dict) -> int:
        return column[key] - (column[beyond] if beyond else 0)

    def cell(column: dict, baseline: dict) -> str:
        share = "" if column is baseline else f" ({size(column) / size(baseline):.0%})"
        return f"{size(column) / MB:.0f} MB{share}"

    return cell


def _speed(key: str):
    def cell(column: dict, baseline: dict) -> str:
        median = column[key]["median"]
        ratio = "" if column is baseline else f" ({median / baseline[key]['median']:.2f}x)"
        return f"{median:.4g}{ratio}"

    return cell
