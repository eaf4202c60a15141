"""service.toml: what is refused, with line and nearest name; the commented file; the unit and what systemd thinks of it."""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from colibri_edge.apps import cli
from colibri_edge.apps.service import config as C
from colibri_edge.apps.service.prompt import Prompt, SensorError
from colibri_edge.apps.service.systemd import _quoted, unit_template

ROOT = Path(__file__).parent.parent
GOOD = '[model]\nfile = "demo"\n[source]\nkind = "stdin"\n'


@pytest.fixture
def check(tmp_path):
    """check(text) -> the problems of a config, without the file's path."""

    def run(text: str) -> list[str]:
        file = tmp_path / "service.toml"
        file.write_text(text)
        try:
            C.load(file)
        except C.ConfigError as e:
            assert all(p.startswith(str(file)) for p in e.problems)
            return [p.removeprefix(str(file)) for p in e.problems]
        return []

    return run


@pytest.mark.parametrize(("text", "problem"), [
    (GOOD + "evry = 3\n", ":5: unknown key 'evry' in [source] stdin"),
    ('[model]\nfile = "demo"\n[source]\nkind = "timer"\n\nevrey = "5s"\n', ":6: unknown key 'evrey' in [source] timer; did you mean"),
    (GOOD + "[modle]\n", ":5: unknown section [modle]; did you mean 'model'?"),
    (GOOD.replace("stdin", "sdtin"), ":4: kind of [source] is 'sdtin', wanted one of timer, stdin, fifo, socket, folder, mqtt; did"),
    ("[source]\nkind = 'stdin'", ": [model] lacks the key 'file'"),
    ('[model]\nfile = "demo"', ": [source] has no kind"),
    (GOOD + "[answer]\nmax_tokens = 0\n", ":6: max_tokens in [answer] is 0, wanted a whole number from 1"),
    (GOOD + "[answer]\nmax_tokens = true\n", ":6: max_tokens in [answer] is True"),
    (GOOD + '[answer]\ndeadline = "soon"\n', ":6: deadline in [answer] is 'soon', wanted a time above 0, such as \"30s\""),
    (GOOD + '[[sink]]\nkind = "stdout"\n[[sink]]\nkind = "file"\npaht = "x"\n',
     ":9: unknown key 'paht' in [[sink]] file; did you mean 'path'?"),
    ('[model]\nfile = "demo"\n[source]\nkind = ["stdin"]\n', ":4: kind of [source] is ['stdin']"),
    (GOOD + '[sink]\nkind = "stdout"\n', ":5: sink is one table, wanted [[sink]]"),
    (GOOD + '[[sink]]\nkind = "file"\npath = "nowhere/x.json"\n', "/nowhere is not there"),
    (GOOD + '[[sink]]\nkind = "file"\npath = "${name}.json"\n', ":7: path of a file sink holds ${name}, wanted ${id} or ${date}"),
    (GOOD + '[[sink]]\nkind = "webhook"\nurl = "example.org"\n', ":7: url is 'example.org', wanted one that begins with http"),
    (GOOD + '[prompt]\ntext = """\na ${inptu}"""\n', ":6: the template has the field ${inptu}; did you mean ${input}?"),
    (GOOD + '[prompt]\ntext = "5$ a piece"\n', ":6: the template has a $ at character 2 that begins no field; write $$"),
    (GOOD + '[prompt]\ntext = "a"\nfile = "b"\n', ":7: [prompt] has both text and file"),
    (GOOD + '[prompt]\nfile = "b"\n', "No such file"),
    (GOOD + '[prompt]\nraw = true\nsystem = "x"\n', ":7: system needs the chat template"),
    (GOOD + '[answer]\nschema = "none.json"\n', ":6: "),
    (GOOD.replace("demo", "none.colibri"), ":2: model file "),
    (GOOD + "[pace]\nfrom = 90\n", "wanted more than from, which is 90"),
    ('[model]\nfile = "demo"\n[source]\nkind = "socket"\npath = "s"\n', "needs a folder to keep it in: set folder in [queue]"),
    (GOOD + "[queue\n", ":5: "),
    (GOOD + 'a = "b"\na = "c"\n', ":6: "),
])
def test_what_is_refused(check, text, problem):
    found = check(text)
    assert any(problem in p for p in found), found


def test_all_problems_at_once(check, tmp_path, capfd):
    text = GOOD + "[answer]\nmax_tokens = -1\nseeed = 1\n[log]\nlevel = 'loud'\n"
    assert [re.match(r":(\d+)", p)[1] for p in check(text)] == ["6", "7", "9"]
    assert cli.main(["service", "--config", str(tmp_path / "service.toml"), "--check"]) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 3 and err.count("colibri-edge: error: ") == 3
    (tmp_path / "service.toml").write_bytes(b"[model]\nfile = '\xff'\n")
    assert cli.main(["service", "--config", str(tmp_path / "service.toml")]) == 1
    assert ":2: byte 0xff is not UTF-8" in capfd.readouterr().err
    assert cli.main(["service", "--config", str(tmp_path / "none.toml")]) == 1
    assert cli.main(["service", "--config", "x", "--yes"]) == 2


def test_the_commented_file_is_good_and_whole(check, tmp_path, capfd):
    """It passes the check, no key is missing in it, and its values are defaults where there are defaults."""
    text = (ROOT / "configs/service.toml").read_text()
    here = text.replace("/run/colibri-edge/", f"{tmp_path}/").replace("/var/lib/colibri-edge", str(tmp_path))
    assert any("needs a folder" in p for p in check(here))
    here = here.replace("# folder =", "folder =")
    assert check(here) == []
    for spec in (*C.SECTIONS.values(), *C.SOURCES.values(), *C.SINKS.values(), C.SENSOR):
        for key in spec:
            assert re.search(rf"\b{key}\b", text), f"{key} is not in configs/service.toml"
    # commented keys of the plain sections hold their defaults, or at least something that is taken
    for name, spec in C.SECTIONS.items():
        part = re.split(r"\n(?:# )?\[", text.split(f"\n[{name}]\n")[1])[0]
        for key, value in re.findall(r"(?m)^#? ?(\w+) = (\S+|\"[^\"]*\")(?:\s+#.*)?$", part):
            found = spec[key][0](tomllib.loads(f"v = {value}")["v"])
            if spec[key][1] not in (None, C.Required) and key != "stop":
                assert found == spec[key][1], f"{key} in [{name}]"
    (tmp_path / "service.toml").write_text(here)
    assert cli.main(["service", "--config", str(tmp_path / "service.toml"), "--check"]) == 0
    assert capfd.readouterr().out.endswith("good; socket -> stdout\n")


def test_check_and_install_take_the_commented_file_as_it_stands(tmp_path, capfd, monkeypatch):
    """As the documentation has it: the folders that the unit makes are not there yet. Another absent folder is still a problem, and so
    are these where the service is started by hand."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(C, "UNIT_FOLDERS", (tmp_path / "run", tmp_path / "state"))
    config = tmp_path / "service.toml"
    text = (ROOT / "configs/service.toml").read_text()
    config.write_text(text.replace("/run/colibri-edge/", f"{tmp_path}/run/"))
    service = ["service", "--config", str(config)]
    assert cli.main([*service, "--check"]) == 0
    assert "which the unit makes" in capfd.readouterr().out
    assert cli.main([*service, "--install"]) == 0
    assert "ExecStart=" in capfd.readouterr().out
    assert cli.main(service) == 1
    said = capfd.readouterr().err
    assert f"folder {tmp_path / 'run'} is not there" in said and "needs a folder to keep it in" in said
    config.write_text(text.replace("/run/colibri-edge/", f"{tmp_path}/elsewhere/"))
    assert cli.main([*service, "--check"]) == 1
    assert f"folder {tmp_path / 'elsewhere'} is not there" in capfd.readouterr().err


def test_sensors_fill_the_template(check, tmp_path):
    (tmp_path / "temp").write_text("21370\n")
    (tmp_path / "door").write_text("open\n")
    text = GOOD + ('[prompt]\nsystem = "It is ${hall} C, $$5"\ntext = "${input}; door ${door}, rain ${rain}"\n'
                   '[sensors.hall]\nfile = "temp"\nscale = 0.001\ndigits = 1\n[sensors.door]\nfile = "door"\n'
                   '[sensors.rain]\nfile = "none"\ndefault = "unknown"\n')
    assert check(text) == []
    prompt = Prompt(C.load(tmp_path / "service.toml"))
    assert prompt.fill("lamp ${door} $", "1") == [{"role": "system", "content": "It is 21.4 C, $5"},
                                                {"role": "user", "content": "lamp ${door} $; door open, rain unknown"}]
    (tmp_path / "door").unlink()
    with pytest.raises(SensorError, match="sensor door: .*No such file"):
        prompt.fill("x", "1")
    assert any("unknown key 'sacle'" in p and "'scale'" in p for p in check(text + "sacle = 3\n"))


# -- the unit -------------------------------------------------------------------------------------------------

SYSTEMD = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")


@pytest.fixture
def unit(check, tmp_path, capfd, monkeypatch) -> Path:
    """The unit that --install prints for a config with a ceiling, as a file."""
    (tmp_path / "colibri-edge").write_text("#!/bin/sh\n")
    (tmp_path / "colibri-edge").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (tmp_path / "service.toml").write_text(GOOD.replace("[source]", 'ram = "768MiB"\n[source]'))
    assert cli.main(["service", "--config", str(tmp_path / "service.toml"), "--install"]) == 0
    out = capfd.readouterr().out
    text = out[out.index("[Unit]"):out.index("# then, as root:")]
    assert "systemctl daemon-reload" in out and "systemctl enable --now colibri-edge.service" in out
    file = tmp_path / "colibri-edge.service"
    file.write_text(text)
    return file


def test_unit_follows_the_config(unit, tmp_path):
    text = unit.read_text()
    assert f"ExecStart={tmp_path}/colibri-edge service --config {tmp_path}/service.toml\n" in text
    assert "\nMemoryMax=768M\n" in text and "\nPrivateNetwork=yes\n" in text and "\nDynamicUser=yes\n" in text
    assert unit_template() == (ROOT / "configs/colibri-edge.service").read_text()


def test_install_without_systemd(check, tmp_path, capfd, monkeypatch, unit):
    monkeypatch.setattr("colibri_edge.apps.service.systemd.UNIT", tmp_path / "never")
    monkeypatch.setattr("colibri_edge.apps.service.systemd.shutil.which",
                        lambda name, path=None: None if name == "systemctl" else "/bin/true")
    assert cli.main(["service", "--config", str(tmp_path / "service.toml"), "--install", "--yes"]) == 1
    assert "not run by systemd" in capfd.readouterr().err and not (tmp_path / "never").exists()


@SYSTEMD
def test_systemd_verifies_the_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert done.returncode == 0 and "colibri-edge.service" not in done.stderr, done.stderr


@SYSTEMD
def test_exposure(unit):
    """systemd-analyze security --offline: under 4.0 (docs/service.md says how much)."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True)
    m = re.search(r"Overall exposure level for colibri-edge.service: (\d+\.\d)", done.stdout)
    assert m and float(m[1]) < 4.0, done.stdout + done.stderr


def test_schema_of_a_config(check, tmp_path):
    (tmp_path / "s.json").write_text('{"type": "colour"}')
    assert any("Invalid type: colour" in p for p in check(GOOD + '[answer]\nschema = "s.json"\n'))
    (tmp_path / "s.json").write_text(json.dumps({"type": "object"}))
    assert check(GOOD + '[answer]\nschema = "s.json"\n') == []
    assert any("stop would cut" in p for p in check(GOOD + '[answer]\nschema = "s.json"\nstop = ["}"]\n'))


@pytest.mark.parametrize("path, word", [
    ("/etc/colibri-edge/service.toml", "/etc/colibri-edge/service.toml"), ("/etc/my boards/a.toml", '"/etc/my boards/a.toml"'),
    ('/x/50%/"q"\\$H', '"/x/50%%/\\"q\\"\\\\$$H"'),
])
def test_paths_in_a_unit(path, word):
    assert _quoted(path) == word
