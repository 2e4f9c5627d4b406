from tests.support.logs import leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "[enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:208] ifa != nullptr. Unable to "
            "find interface for: ^lo",
        ),
        "gloo found no interface '^lo'",
    ),
    (raised(0, "RuntimeError", "Unable to find address for: eth9"), "gloo found no interface 'eth9'"),
    (
        raised(
            3,
            "RuntimeError",
            "[../gloo/transport/tcp/pair.cc:769] connect [127.0.1.1]:20733: Connection refused",
        ),
        "gloo announced the loopback address 127.0.1.1",
    ),
    (
        raised(
            3,
            "RuntimeError",
            "Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error: connect "
            "[127.0.1.1]:2109: Connection refused",
        ),
        "gloo announced the loopback address 127.0.1.1",
    ),
    (
        raised(
            3,
            "RuntimeError",
            "Gloo connectFullMesh failed with [../pair.cc:152] timed out connecting: SO_ERROR: Connection "
            "refused, remote=[127.0.0.1]:28114 (rank=9, size=16)",
        ),
        "gloo announced the loopback address 127.0.0.1",
    ),
]

test_it_is_named = names("DD702", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD702",
    [
        raised(
            3, "RuntimeError", "Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error"
        ),
    ],
)

test_what_training_survived_is_not = lets_survive("DD702", NAMED[:2])
