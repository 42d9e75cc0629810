"""Tables of speed in the documentation are what the committed rows give."""

import json

import pytest

from benchmarks import tables

MADE = {
    "made_with": {"xcebra": "1.0", "cebra": "0.6.1", "captum": "0.9.0", "torch": "2.0"},
    "made_at": "2030-01-02T03:04:05Z",
    "commit": "abc1234",
    "machine": {"processor": "a processor", "threads": 2},
}
PEERS = {
    **{f"{key}_s": 1234.5 for key in tables._PEERS.values()},
    **{f"{key}_product_share": 0.25 for key in tables._PEERS.values()},
    "peak_mb": 2000.0,
}


def recording(**other):
    return {
        "seconds": {"training": 3.21, "test": 1.5, "short": 0.01},
        "product_share": {"training": 0.5, "test": 0.125, "total": 0.375},
        "total_s": 4.72,
        "peak_mb": 512.0,
        "steps": 400,
        "batch": 1024,
        **other,
    }


@pytest.fixture
def rows():
    neighbour = {
        "median_s": {"alone": 10.0},
        "slower": {"Python": 1.5, "products": 2.25},
        "side_by_side_ratio": 0.75,
    }
    variants = dict.fromkeys(tables._VARIANTS, 2.0)
    return {
        "budget": {
            **MADE,
            "numpy_products_counted": False,
            "recordings": {
                "small": recording(peers=PEERS),
                "large": recording(peers={"left_out": "it is too large"}),
                "file": {"left_out": "there is no network"},
            },
        },
        "core": {
            **MADE,
            "infonce": {"ours_s": 0.01, "cebra_s": 0.5, "ratio": 50.0},
            "label_positives": {"ours_s": 0.004, "cebra_s": 3.0, "ratio": 750.0},
            "training_step": {
                recipe: {
                    "ours_s": 0.04,
                    "cebra_s": 4.0,
                    "ratio": 100.0,
                    "matrix_product_share": 0.4,
                }
                for recipe in ("xcebra", "paper")
            },
        },
        "neighbours": {**MADE, "turns": 3, "sizes": {"10 x 2": {"this version": neighbour}}},
        "products": {
            **MADE,
            "sums": [{"rows": 2500, "ms": variants, "largest_error": variants}],
            "steps": [{"rows": 2500, "ms": {"package": 1.0, "autograd": 2.0}, "compiled": None}],
        },
    }


def test_the_page_has_the_tables_of_the_last_rows():
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.with_tables(page) == page
    for name in tables.TABLES:
        assert page.count(f"<!-- table: {name} -->") == 1


def test_tables_say_what_is_in_the_last_row(rows, tmp_path):
    page = "".join(f"<!-- table: {name} -->\nold\n<!-- end of table -->\n" for name in rows)
    assert tables.with_tables(page, tmp_path).count(tables.NOT_MEASURED) == len(tables.TABLES)
    for name, row in rows.items():
        lines = [json.dumps({"an": "older row"}), json.dumps(row)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    text = tables.with_tables(page, tmp_path)
    assert "old" not in text.replace("older", "")
    assert "| training | 3.2 s (50%) | 3.2 s (50%) |" in text
    assert "| **all** | **4.7 s** (38%) | **4.7 s** (38%) |" in text
    assert "| short" not in text
    assert "| CEBRA's training | 1,234 s (25%) | left out |" in text
    assert "file: left out, because there is no network." in text
    assert "large: it is too large." in text
    assert "Matrix products of numpy are not counted." in text
    assert "| 10 x 2, this version | 10.0 s | 1.50x | 2.25x | 0.75 |" in text
    assert "| 2,500 | 1.0 ms | 2.0 ms | no |  |" in text
    assert text.count("a processor, 2 threads; 2030-01-02.") == len(tables.TABLES)
    assert tables.with_tables(text, tmp_path) == text
