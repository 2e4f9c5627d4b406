import json
import shlex
from urllib.parse import quote as percent_encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.model import CheckResult, Evidence, Family, Finding, Level, Outcome, Report, Where
from ddpdoctor.redact import clean, escape, mask_command, mask_files, quote, show_value
from ddpdoctor.text import quote_command

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
RANDOM = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("WANDB_API_KEY", "0123abcd"),
        ("apiKey", "abc"),
        ("CLIENT_SECRET", "1"),
        ("DB_PASSWORD", "123456"),
        ("MYSQL_PWD", "hello"),
        ("DB_PASS", "hello"),
        ("GOOGLE_CREDENTIALS", "hello"),
        ("REGISTRY_AUTH", "hello"),
        ("X", "hf_abcdefghijklmnop"),
        ("X", "ghp_abcdefghijklmnop1234"),
        ("X", "AKIAIOSFODNN7EXAMPLE"),
        ("X", "sk-proj-abcdefghij1234"),
        ("X", JWT),
        ("X", RANDOM),
        ("X", "0123456789abcdef0123456789abcdef"),
    ],
)
def test_a_value_is_masked_where_its_name_or_shape_says_secret(name, value):
    assert show_value(name, value) == "***"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "3"),
        ("MASTER_ADDR", "node-01.cluster"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("PWD", "/home/ana"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("MONKEY", "business"),
        ("BYPASS_CHECKS", "abc"),
        ("HF_TOKEN", ""),
        ("CUDA_VISIBLE_DEVICES", "GPU-5a1b2c3d-1111-2222-3333-444455556666"),
        ("PYTHONPATH", "/opt/conda/envs/Train2024/lib/python3.12/site-packages"),
    ],
)
def test_an_ordinary_value_is_shown(name, value):
    assert show_value(name, value) == repr(value)


def test_the_password_in_a_url_is_masked_and_the_host_is_not():
    assert show_value("https_proxy", "http://ana:hunter2@proxy:3128/") == "'http://***@proxy:3128/'"


def test_a_value_is_escaped_and_shortened():
    assert show_value("RANK", "3\x1b[31m\u202e") == r"'3\x1b[31m\u202e'"
    assert len(show_value("NCCL_NET", "x" * 1000)) < 130


def test_quote_keeps_printable_unicode():
    assert quote("größe 数据 \u2028\x9b\x7f") == r"'größe 数据 \u2028\x9b\x7f'"


def test_options_and_assignments_of_a_command_are_masked():
    command = ["env", "HF_TOKEN=abc", "python", "t.py", "--password=x", "--api-key", "x", "--lr", "3", "-v"]
    masked = [
        "env",
        "HF_TOKEN=***",
        "python",
        "t.py",
        "--password=***",
        "--api-key",
        "***",
        "--lr",
        "3",
        "-v",
    ]
    assert mask_command(command) == masked
    assert "x" not in quote_command(["run", "--password", "xxxx"]).replace("xxx***", "")


@pytest.mark.parametrize(
    "text",
    [
        "_ZN4c10d16ProcessGroupGloo9allreduceERSt6vectorIN2at6TensorESaIS3_EE",
        "DistributedDataParallelCPUTest2WithGlooBackend3",
        "missing keys: head.weight; KeyError: 'step'; tokens=4096; last_key=none",
        "sum 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 on rank 2",
        "/tmp/ddpdoctor-k2j3h4/rank0.log",
        "tcp://[fe80::1%eth0]:29500",
    ],
)
def test_technical_text_passes_unmasked(text):
    assert cleaned_texts(text, {}) == {text}


def test_short_secrets_are_masked_as_words_only_and_ordinary_values_never():
    environ = {"DB_PASSWORD": "rain", "API_KEY": "true", "MY_SECRET": "1", "AUTH": "29500"}
    assert cleaned_texts("train on port 29500 is true, 1: rain", environ) == {
        "train on port 29500 is true, 1: ***"
    }


def test_the_command_of_a_report_is_masked():
    report = Report("0.1.0", ("check", "--", "python", "t.py", "--token", "abcd"), 0, 1.0)
    assert clean(report, {}).command == ("check", "--", "python", "t.py", "--token", "***")


def test_the_files_of_a_folder_are_masked_and_json_stays_json(tmp_path):
    said = 'Unable to find interface "s3cr\'et-value" or hf_abcdefghijklmnop1234\n'
    files = {
        "engine.log": said,
        "a/error.json": json.dumps({"message": said}),
        "cut.jsonl": json.dumps([said])[:-9],
    }
    files |= {"rank0.jsonl": "".join(json.dumps({"event": said, "n": [1, None]}) + "\n" for _ in range(2))}
    (tmp_path / "a").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "core").write_bytes(b"\xff\x00\r\n s3cr'et-value")
    numbers = b"\0\0 hf_abcdefghijklmnop1234 \0"
    (tmp_path / "7-1.numbers").write_bytes(numbers)
    mask_files(tmp_path, {"DB_PASSWORD": "s3cr'et-value"})
    assert (tmp_path / "7-1.numbers").read_bytes() == numbers
    for name in (*files, "core"):
        left = (tmp_path / name).read_bytes()
        assert b"et-value" not in left
        assert b"hf_abc" not in left
        assert b"***" in left
    masked = said.replace("s3cr'et-value", "***").replace("hf_abcdefghijklmnop1234", "***")
    assert json.loads((tmp_path / "a/error.json").read_text()) == {"message": masked}
    lines = (tmp_path / "rank0.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"event": masked, "n": [1, None]}] * 2
    assert (tmp_path / "core").read_bytes() == b"\xff\x00\r\n ***"


def test_newlines_stay_where_a_text_may_have_several_lines():
    (finding,) = clean(report_of("a\nb\tc"), {}).findings
    assert finding.headline == r"a\nb\tc"
    assert finding.fix == "a\nb    c"


secrets = st.text(st.characters(exclude_categories=("Cs",)), min_size=8, max_size=40).filter(
    lambda text: len(text.split()) == 1 and len(set(text)) > 3 and any(c.isalnum() for c in text)
)
around = st.text(max_size=20)


@given(st.text())
def test_no_control_character_but_newline_survives(text):
    for shown in cleaned_texts(text, {}):
        assert all(c.isprintable() or c == "\n" for c in shown)
    assert escape(text).isprintable()
    assert quote(text).isprintable()


@given(secrets, around, around)
def test_no_planted_secret_survives(secret, before, after):
    forms = (
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        shlex.quote(secret),
        percent_encode(secret),
    )
    for form in forms:
        for shown in cleaned_texts(f"{before} {form} {after}", {"SERVICE_PASSWORD": secret}):
            if escape(secret) not in escape(before + after):
                assert secret not in shown
                assert escape(secret) not in shown


def report_of(text: str) -> Report:
    finding = Finding(
        "DD001", Level.FAIL, text, text, text, where=Where(text, 1, text), evidence=(Evidence(text),)
    )
    line = CheckResult("DD001", "n", Family.LAUNCH, Outcome.FAIL, text, text, evidence=(Evidence(text),))
    return Report("0", (text,), 1, 0.0, (line,), (finding,), {"folder": {text: [text]}}, (text,))


def cleaned_texts(text: str, environ: dict[str, str]) -> set[str]:
    """What becomes of a text in each place of a report that can hold one."""
    report = clean(report_of(text), environ)
    (line,), (finding,) = report.checks, report.findings
    assert finding.where is not None
    ((key, (item,)),) = report.run["folder"].items()
    return {
        *(line.text, line.reason, line.evidence[0].text, report.notes[0], key, item, report.command[0]),
        *(finding.headline, finding.why, finding.fix, finding.where.file, finding.evidence[0].text),
    }  # fmt: skip
