package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the figures belong to. What could not be found out is empty.
type Machine struct {
	CPU        string            `json:"cpu"`
	CPUs       int               `json:"cpus"`
	Cache      string            `json:"largest_cache"`
	Kernel     string            `json:"kernel"`
	LoadBefore string            `json:"load_before"` // the kernel's load averages
	LoadAfter  string            `json:"load_after"`
	Versions   map[string]string `json:"versions"`
}

func thisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), CPU: runtime.GOARCH, LoadBefore: loadAverage(),
		Versions: map[string]string{"Go": runtime.Version()}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = strings.TrimSpace(v)
			break
		}
	}
	for _, index := range []string{"index2", "index3"} {
		if text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cache/" + index + "/size"); err == nil {
			m.Cache = strings.TrimSpace(string(text))
		}
	}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			if strings.HasSuffix(d.Path, "/shmipc-go") {
				m.Versions["shmipc-go"] = d.Version
			}
		}
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		m.Versions["ringcache"] = strings.TrimSpace(string(out))
	}
	return m
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}

// busy reports whether other programs kept a processor or more busy when the run began.
func (m Machine) busy() bool {
	var load float64
	_, err := fmt.Sscan(m.LoadBefore, &load)
	return err == nil && load >= 1
}
