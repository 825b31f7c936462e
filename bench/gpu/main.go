// Command gpu measures copies from a shared-memory ring to a GPU: how fast they are with the ring
// registered and not, beside PyTorch's own memory and vLLM's way; what a call that submits takes; what
// registering costs; and that every byte is copied while a writer reuses the ring.
//
// Building needs nothing of NVIDIA's, and running only the driver: where there is none the program ends with
// status 2. The arms that use PyTorch run in an interpreter that --python names, and are left out without
// one. ../README.md describes parts and arms.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/pin"
)

type options struct {
	Device  int      `help:"Ordinal of the GPU, as CUDA counts." default:"0" json:"device"`
	Library string   `help:"The driver's library, if not the installed one." json:"library,omitempty"`
	Python  string   `help:"Interpreter with PyTorch for CUDA, for its arms." json:"-"`
	Out     string   `help:"Folder for results.json." json:"-"`
	Plots   bool     `help:"Draw charts (SVG) into the folder, too." json:"-"`
	Only    []string `help:"Parts to run, all if empty: ${parts}." enum:"${parts}" json:"only,omitempty"`
	Quick   bool     `help:"Small sizes and few rounds: shows that everything runs, within a minute. Replaces the options below." json:"quick"`

	KiB            []int         `name:"kib" help:"Sizes of the copies in KiB." default:"64,256,1024,4096,16384,65536,262144" json:"kib"`
	ObjectKiB      []int         `name:"object-kib" help:"Sizes in KiB for ring and vLLM's path." default:"1024,24576,98304" json:"object_kib"`
	RingMiB        int           `name:"ring-mib" help:"Least bytes of the slots in MiB." default:"1024" json:"ring_mib"`
	Repetitions    int           `help:"Repetitions of everything." default:"5" json:"repetitions"`
	PinMiB         []int         `name:"pin-mib" help:"Sizes in MiB to register." default:"256,1024,4096" json:"pin_mib"`
	PinCallMiB     int           `name:"pin-call-mib" help:"Size of a call in MiB, if not all at once." default:"256" json:"pin_call_mib"`
	Processes      []int         `help:"Numbers of processes that register at once." default:"1,2,4" json:"processes"`
	TogetherMiB    int           `name:"together-mib" help:"Size in MiB that they register." default:"1024" json:"together_mib"`
	Correctness    time.Duration `help:"Time of the correctness run." default:"60s" json:"correctness_ns"`
	CorrectnessKiB int           `name:"correctness-kib" help:"Size of its payloads in KiB." default:"4096" json:"correctness_kib"`
	ControlMiB     int           `name:"control-mib" help:"Size of the negative control in MiB." default:"256" json:"control_mib"`
	Matrix         int           `help:"Order of the matrices that are multiplied beside copies." default:"8192" json:"matrix"`

	Child     string `hidden:"" help:"Register this file, see runChild." json:"-"`
	ChildLock bool   `hidden:"" help:"Take the file's lock meanwhile." json:"-"`
}

// Validate is called by kong.
func (o *options) Validate() error {
	for _, n := range slices.Concat(o.KiB, o.ObjectKiB, o.PinMiB, o.Processes,
		[]int{o.RingMiB, o.Repetitions, o.PinCallMiB, o.TogetherMiB, o.CorrectnessKiB, o.ControlMiB, o.Matrix}) {
		if n < 1 {
			return errors.New("sizes and counts must be positive")
		}
	}
	return nil
}

// quick replaces sizes and counts by small ones.
func (o *options) quick() {
	o.KiB, o.ObjectKiB, o.RingMiB, o.Repetitions = []int{64, 256, 1024}, []int{1024}, 8, 2
	o.PinMiB, o.PinCallMiB, o.Processes, o.TogetherMiB = []int{4, 16}, 4, []int{1, 2}, 4
	o.Correctness, o.CorrectnessKiB, o.ControlMiB, o.Matrix = time.Second, 256, 16, 256
}

// parts are the measurements, in order.
var parts = []struct {
	name    string
	measure func(*bench, context.Context) error
}{
	{"control", (*bench).measureControl},
	{"correctness", (*bench).measureCorrectness},
	{"copies", (*bench).measureCopies},
	{"pinning", (*bench).measurePinning},
	{"processes", (*bench).measureTogether},
	{"context", (*bench).measureContext},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ",")
}

// statusUnavailable is the exit status where no GPU can be used.
const statusUnavailable = 2

func main() {
	var o options
	kong.Parse(&o, kong.Description("Copies from a shared-memory ring to a GPU: bandwidth, submission, cost of registering, correctness."),
		kong.Vars{"parts": partNames()})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "gpu:", err)
	if errors.Is(err, pin.ErrUnavailable) {
		os.Exit(statusUnavailable)
	}
	os.Exit(1)
}
