from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "DistributedDataParallel device_ids and output_device arguments only work with "
            "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0]",
        ),
        "DistributedDataParallel's constructor failed on rank 0: "
        "device_ids is given, and the module's parameters are on another device",
    ),
    (
        raised(0, "ValueError", "device_ids can only be None or contain a single element."),
        "DistributedDataParallel's constructor failed on rank 0: device_ids names several devices",
    ),
]

test_it_is_named = names("DD224", NAMED)

test_what_training_survived_is_not = lets_survive("DD224", NAMED[:2])
