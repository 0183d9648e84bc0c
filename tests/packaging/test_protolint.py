"""The contract's lint and its check for breaks: both bite, and our own .proto files pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.protolint import breaks, compiled, last_release, lint, main

ROOT = Path(__file__).resolve().parents[2]

GOOD = """syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
service ShopService {
  rpc Buy(BuyRequest) returns (BuyResponse);
  rpc Watch(WatchRequest) returns (stream WatchResponse);
}
enum TaxKind {
  TAX_KIND_UNSPECIFIED = 0;
  TAX_KIND_FULL = 1;
}
message BuyRequest {
  reserved 9;
  string item_name = 1;
  optional uint32 count = 2;
  TaxKind tax = 3;
  map<string, uint64> prices = 4;
  oneof payment {
    string card = 5;
    bytes token = 6;
  }
  google.protobuf.Timestamp when = 7;
}
message BuyResponse {
  message Line {
    string text = 1;
  }
  repeated Line lines = 1;
}
message WatchRequest {}
message WatchResponse {}
"""


def written(folder: Path, text: str, name: str = "shop/v1/shop.proto") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_our_own_contract_keeps_to_the_rules() -> None:
    files = compiled(ROOT / "proto")
    assert len(files.file) == len(list((ROOT / "proto").rglob("*.proto"))) > 0
    assert lint(files) == []


def test_a_good_file_has_no_finding(tmp_path: Path) -> None:
    assert lint(compiled(written(tmp_path, GOOD))) == []


BAD = [
    ("PACKAGE_DIRECTORY_MATCH", "package shop.v1;", "package shops.v1;"),
    ("PACKAGE_VERSION_SUFFIX", "package shop.v1;", "package shop;"),
    ("PACKAGE_DEFINED", "package shop.v1;", ""),
    ("SERVICE_SUFFIX", "service ShopService", "service Shop"),
    ("SERVICE_PASCAL_CASE", "service ShopService", "service shop_Service"),
    ("RPC_PASCAL_CASE", "rpc Buy(", "rpc buy("),
    ("RPC_REQUEST_STANDARD_NAME", "rpc Buy(BuyRequest)", "rpc Buy(WatchRequest)"),
    ("RPC_RESPONSE_STANDARD_NAME", "returns (BuyResponse)", "returns (BuyRequest)"),
    ("RPC_REQUEST_RESPONSE_UNIQUE", "returns (BuyResponse)", "returns (BuyRequest)"),
    ("ENUM_ZERO_VALUE_SUFFIX", "TAX_KIND_UNSPECIFIED", "TAX_KIND_NONE"),
    ("ENUM_VALUE_PREFIX", "TAX_KIND_FULL", "FULL"),
    ("ENUM_VALUE_UPPER_SNAKE_CASE", "TAX_KIND_FULL", "TAX_KIND_Full"),
    ("ENUM_PASCAL_CASE", "TaxKind", "taxKind"),
    ("ENUM_NO_ALLOW_ALIAS", "TAX_KIND_FULL = 1;", "TAX_KIND_FULL = 1; TAX_KIND_ALL = 1; option allow_alias = true;"),
    ("MESSAGE_PASCAL_CASE", "Line", "line_item"),
    ("FIELD_LOWER_SNAKE_CASE", "item_name", "itemName"),
    ("ONEOF_LOWER_SNAKE_CASE", "payment", "Payment"),
    ("IMPORT_NO_PUBLIC", 'import "google', 'import public "google'),
]


@pytest.mark.parametrize(("rule", "good", "bad"), BAD)
def test_each_rule_bites(tmp_path: Path, rule: str, good: str, bad: str) -> None:
    """With the file and the line where it is broken."""
    text = GOOD.replace(good, bad)
    assert text != GOOD
    found = [line for line in lint(compiled(written(tmp_path, text))) if rule in line]
    assert found
    if rule not in ("PACKAGE_DEFINED", "RPC_REQUEST_RESPONSE_UNIQUE"):
        place = text[: text.index(bad)].count("\n") + 1
        assert any(line.startswith(f"shop/v1/shop.proto:{place}: ") for line in found), found


def test_a_file_name_in_camel_case_is_found(tmp_path: Path) -> None:
    found = lint(compiled(written(tmp_path, GOOD, "shop/v1/ShopApi.proto")))
    assert [line.split()[1] for line in found] == ["FILE_LOWER_SNAKE_CASE"]


def broken(folder: Path, old: str, new: str) -> list[str]:
    return breaks(compiled(written(folder / "old", old)), compiled(written(folder / "new", new)))


BREAKING = [
    ("BuyRequest.count is gone", "optional uint32 count = 2;", ""),
    ("BuyRequest.count is gone", "optional uint32 count = 2;", "reserved 2;"),
    ("its name was 'item_name'", "item_name", "title"),
    ("its type was TYPE_STRING and is TYPE_BYTES", "string item_name", "bytes item_name"),
    ("its label was LABEL_OPTIONAL and is LABEL_REPEATED", "string item_name", "repeated string item_name"),
    ("its proto3_optional was True", "optional uint32", "uint32"),
    ("its type_name was '.shop.v1.TaxKind'", "TaxKind tax", "google.protobuf.Timestamp tax"),
    ("its json_name was 'itemName'", "string item_name = 1", 'string item_name = 1 [json_name = "item"]'),
    ("was in oneof payment and is in none", "    bytes token = 6;\n  }", "  }\n  bytes token = 6;"),
    ("its type was TYPE_UINT64 and is TYPE_STRING", "map<string, uint64>", "map<string, string>"),
    ("numbers 9 to 9 are no longer reserved", "reserved 9;", ""),
    ("message shop.v1.BuyResponse.Line is gone", "Line", "Row"),
    ("enum shop.v1.TaxKind is gone", "TaxKind", "TaxSort"),
    ("TAX_KIND_FULL is gone", "TAX_KIND_FULL = 1;", ""),
    ("its name is TAX_KIND_HALF", "TAX_KIND_FULL", "TAX_KIND_HALF"),
    ("service shop.v1.ShopService is gone", "ShopService", "StoreService"),
    ("call shop.v1.ShopService.Buy is gone", "rpc Buy(BuyRequest) returns (BuyResponse);", ""),
    ("its server_streaming was True", "returns (stream WatchResponse)", "returns (WatchResponse)"),
    ("its input_type was", "rpc Buy(BuyRequest)", "rpc Buy(WatchRequest)"),
]


@pytest.mark.parametrize(("told", "old", "new"), BREAKING)
def test_each_break_is_told(tmp_path: Path, told: str, old: str, new: str) -> None:
    assert any(told in line for line in broken(tmp_path, GOOD, GOOD.replace(old, new)))


def test_growth_is_no_break(tmp_path: Path) -> None:
    """New messages, fields, values and calls; a field that goes with its number and name reserved."""
    new = (
        GOOD.replace("rpc Buy(", "rpc Sell(SellRequest) returns (SellResponse);\n  rpc Buy(")
        .replace("optional uint32 count = 2;", 'reserved 2; reserved "count"; uint64 amount = 8;')
        .replace("TAX_KIND_FULL = 1;", 'TAX_KIND_HALF = 2; reserved 1; reserved "TAX_KIND_FULL";')
    ) + "message SellRequest {}\nmessage SellResponse {}\n"
    assert broken(tmp_path, GOOD, new) == []
    assert broken(tmp_path, GOOD, GOOD) == []


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_last_release_is_what_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No tag: it says so and passes. A tag: what was released then is compared, not what came between."""
    written(tmp_path, GOOD, "proto/shop/v1/shop.proto")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    assert last_release(tmp_path) is None
    assert main([], tmp_path) == 0
    assert "no release tag" in capsys.readouterr().out
    git(tmp_path, "tag", "v0.1.0")
    assert main([], tmp_path) == 0
    assert "nothing breaks the contract of v0.1.0" in capsys.readouterr().out
    written(tmp_path, GOOD.replace("item_name", "title"), "proto/shop/v1/shop.proto")
    git(tmp_path, "commit", "-qam", "two")
    assert main([], tmp_path) == 1
    assert "breaks v0.1.0: shop.v1.BuyRequest.item_name (1): its name was 'item_name'" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="git knows no tag v9"):
        main(["--against", "v9"], tmp_path)


def test_without_git_there_is_nothing_to_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an unpacked sdist."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert last_release(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert last_release(tmp_path) is None


def test_a_shallow_clone_says_that_it_knows_no_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It compares nothing, and must not look as if it had."""
    written(tmp_path / "whole", GOOD, "proto/shop/v1/shop.proto")
    git(tmp_path / "whole", "init", "-q")
    git(tmp_path / "whole", "add", ".")
    git(tmp_path / "whole", "commit", "-qm", "one")
    git(tmp_path / "whole", "tag", "v0.1.0")
    written(tmp_path / "whole", GOOD.replace("item_name", "title"), "proto/shop/v1/shop.proto")
    git(tmp_path / "whole", "commit", "-qam", "two")
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-tags", f"file://{tmp_path}/whole", "shallow")
    assert main([], tmp_path / "shallow") == 0
    assert "shallow clone: nothing is compared" in capsys.readouterr().out


def test_make_check_runs_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "protolint" in next(line for line in makefile.splitlines() if line.startswith("check:"))
