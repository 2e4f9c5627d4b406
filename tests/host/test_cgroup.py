from ddpdoctor.host import System
from ddpdoctor.host.cgroup import Cgroup, read_cgroup
from tests.support.hosts import recorded_host


def test_version_2_in_a_container():
    group = recorded_host("container_v2").cgroup
    assert group == Cgroup(1.5, 2 << 30, 734003200 - 524288000, 1)
    assert group.memory_free == (2 << 30) - 209715200


def test_version_1_takes_the_tightest_of_group_and_ancestors():
    group = recorded_host("container_v1").cgroup
    assert group == Cgroup(4.0, 8 << 30, 1 << 30, 3)


def test_no_control_group_limits_nothing():
    assert recorded_host().cgroup == Cgroup()
    assert Cgroup().memory_free is None


def test_the_ancestor_with_the_least_room_counts():
    files = {
        "/proc/self/cgroup": "0::/user/job\n",
        "/proc/self/mountinfo": "31 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
        "/cg/user/job/memory.max": "4000\n",
        "/cg/user/job/memory.current": "1000\n",
        "/cg/user/memory.max": "5000\n",
        "/cg/user/memory.current": "4500\n",
        "/cg/user/job/cpu.max": "max 100000\n",
    }
    assert recorded_host(files=files).cgroup == Cgroup(None, 5000, 4500, 0)


def test_a_group_that_was_moved_out_of_the_mount_is_read_at_the_mount():
    files = {
        "/proc/self/cgroup": "0::/../other\n",
        "/proc/self/mountinfo": "31 23 0:26 / /cg rw - cgroup2 cgroup2 rw\nshort - cgroup2\n\n",
        "/cg/cpu.max": "50000 100000\n",
    }
    assert recorded_host(files=files).cgroup.cpus == 0.5


def test_this_machine_can_be_read():
    assert read_cgroup(System()).oom_kills >= 0
