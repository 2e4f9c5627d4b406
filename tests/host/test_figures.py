import pytest

from ddpdoctor.host.figures import section
from tests.support.hosts import HOSTS, recorded_host


@pytest.mark.parametrize("name", sorted(file.stem for file in HOSTS.glob("*.yaml")))
def test_every_recorded_host_is_shown(name):
    (table,) = section(recorded_host(name)).figures
    parts = [part for part, _ in table.rows]
    assert parts[0] == "CPUs"
    assert all(text for _, text in table.rows)


def test_the_parts_of_the_plain_host():
    host = recorded_host()
    (table,) = section(host).figures
    assert dict(table.rows)["CPUs"].endswith("for 2 ranks")
    assert any(part == "interface" and "lo is up" in text for part, text in table.rows)
