package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what the figures belong to. Fields that could not be found out are empty.
type machine struct {
	Device     string            `json:"device"`
	BusID      string            `json:"pci_bus_id"`
	Doubt      string            `json:"doubt,omitempty"` // why the figures are no results, empty if they are
	Attributes []attribute       `json:"device_attributes"`
	GPU        map[string]string `json:"nvidia_smi,omitempty"`
	Link       map[string]string `json:"pcie_link_under_load,omitempty"`
	CPU        string            `json:"cpu"`
	CPUs       int               `json:"cpus"`
	Kernel     string            `json:"kernel"`
	SharedMem  uint64            `json:"dev_shm_bytes"`
	Versions   map[string]string `json:"versions"`
}

// attribute is a property of the device by its number in cuda.h.
type attribute struct {
	Number  int    `json:"number"`
	Meaning string `json:"meaning"`
	Value   int    `json:"value"`
}

func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), CPU: cpuModel(),
		SharedMem: sharedMemory().Blocks * uint64(sharedMemory().Bsize)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Versions = map[string]string{"go": runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				m.Versions[s.Key] = s.Value
			}
		}
	}
	return m
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

const sharedMemoryDir = "/dev/shm"

// filePrefix begins the names of the files there, before the process that made them.
const filePrefix = "ringcache-gpu-"

func sharedMemory() (s unix.Statfs_t) {
	if unix.Statfs(sharedMemoryDir, &s) != nil {
		return unix.Statfs_t{}
	}
	return s
}

// room returns an error that explains why n bytes of shared memory can't be had.
func room(n int) error {
	s := sharedMemory()
	if free := s.Bavail * uint64(s.Bsize); uint64(n) > free {
		return fmt.Errorf("%s in %s is not there: %s free", bytesText(n), sharedMemoryDir, bytesText(int(free)))
	}
	return nil
}

// querySMI returns fields that nvidia-smi reports of the GPU. It only reads. nvidia-smi numbers the GPUs in
// another order than CUDA, and all of them, so the GPU is named by its place on the bus.
func (m *machine) querySMI(fields ...string) (map[string]string, error) {
	if m.BusID == "" {
		return nil, errors.New("nvidia-smi: which GPU it is could not be found out")
	}
	out, err := exec.Command("nvidia-smi", "-i", m.BusID, "--query-gpu="+strings.Join(fields, ","),
		"--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	values := strings.Split(strings.TrimSpace(string(out)), ",")
	if len(values) != len(fields) {
		return nil, errors.New("nvidia-smi: an unexpected answer: " + string(out))
	}
	reported := map[string]string{}
	for i, f := range fields {
		reported[f] = strings.TrimSpace(values[i])
	}
	return reported, nil
}

func bytesText(n int) string {
	for _, u := range []struct {
		size int
		name string
	}{{gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'g', 4, 64) + " " + u.name
		}
	}
	return strconv.Itoa(n) + " B"
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// usedMiB returns the memory of the GPU that is in use.
func (m *machine) usedMiB() (int, error) {
	reported, err := m.querySMI("memory.used")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(reported["memory.used"])
}
