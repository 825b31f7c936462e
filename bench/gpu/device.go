package main

import (
	"cmp"
	"context"
	_ "embed"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/bench/internal/process"
)

//go:embed describe.py
var describeScript string

// describeDevice fills in what the figures belong to. Of a driver that can't be identified they are no
// results.
func (b *bench) describeDevice(ctx context.Context) {
	m := &b.report.Machine
	var d struct {
		Name       string      `json:"name"`
		BusID      string      `json:"pci_bus_id"`
		Version    string      `json:"cuda_of_driver"`
		Attributes []attribute `json:"attributes"`
	}
	cmd := exec.CommandContext(ctx, cmp.Or(b.Python, "python3"), "-c", describeScript,
		cmp.Or(b.Library, "libcuda.so.1"), strconv.Itoa(b.Device))
	p, err := process.Start(cmd)
	if err == nil {
		err = p.Receive(&d)
		_ = p.Close() // what it answered counts
	}
	if err != nil {
		b.report.leaveOut("name and attributes of the device, as the driver reports them", err.Error())
	}
	m.Device, m.BusID, m.Attributes, m.Versions["cuda of the driver"] = d.Name, d.BusID, d.Attributes, d.Version
	if strings.HasPrefix(m.Device, "Fake") {
		m.Doubt = "the driver is not real, no GPU was involved"
	} else if m.GPU, err = m.querySMI("name", "driver_version", "memory.total", "vbios_version"); err != nil {
		b.report.leaveOut("what nvidia-smi reports", err.Error())
	}
	if m.Device == "" && b.Library == "" {
		m.Device = m.GPU["name"] // of the same driver
	}
	if m.Device == "" {
		m.Device, m.Doubt = "unknown", "the device could not be identified: that needs python3"
	}
	b.report.Notice = "Measured on the device named under machine."
	if m.Doubt != "" {
		b.report.Notice = "NOT RESULTS: " + m.Doubt + ". The figures only show that the program runs."
	}
}
