"""Prints what the driver reports about a device, as JSON: describe.py LIBRARY DEVICE. It makes no context."""

import ctypes
import json
import sys

# Of cuda.h: the numbers of attributes that decide how memory is registered.
ATTRIBUTES = {
    91: "can use the host's pointer for registered memory",
    99: "registers the host's memory",
    100: "reaches pageable memory through the host's page tables",
    113: "registers memory that is mapped to read only",
}


def main() -> None:
    cuda = ctypes.CDLL(sys.argv[1])
    device, name, version, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()

    def call(function, *arguments):
        if code := getattr(cuda, function)(*arguments):
            sys.exit(f"{function}: code {code}")

    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGet", ctypes.byref(device), int(sys.argv[2]))
    call("cuDeviceGetName", name, len(name), device)
    bus = ctypes.create_string_buffer(32)
    call("cuDeviceGetPCIBusId", bus, len(bus), device)
    attributes = []
    for number, meaning in ATTRIBUTES.items():
        call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        attributes.append({"number": number, "meaning": meaning, "value": value.value})
    release = f"{version.value // 1000}.{version.value % 1000 // 10}"
    print(json.dumps({"name": name.value.decode(), "pci_bus_id": bus.value.decode(), "cuda_of_driver": release,
                      "attributes": attributes}))


main()
