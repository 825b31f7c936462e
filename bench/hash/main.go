// Command hash times the hash of an encoded image, as package mmhash and as vLLM with Python's blake3 compute
// it: the same bytes, in turns, one call at a time, and the same hash, which is compared.
//
//	cd bench && go run ./hash -python "$(../interop/setup.sh)/bin/python"
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/bench/internal/process"
	"github.com/ringcache/ringcache/mmhash"
)

type options struct {
	Python string `required:"" help:"An interpreter with the package blake3."`
	Peer   string `default:"hash/peer.py" help:"The program that it runs."`
	Sizes  []int  `default:"1,16,64,256,1024,3072,24576" help:"Sizes of the image's file in KiB."`
	Rounds int    `default:"60" help:"Turns for each size."`
}

func main() {
	var o options
	kong.Parse(&o, kong.Description("Times the hash of an encoded image beside Python's."))
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "hash:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	peer, err := process.Start(exec.Command(o.Python, o.Peer))
	if err != nil {
		return err
	}
	defer func() {
		if closed := peer.Close(); err == nil {
			err = closed
		}
	}()
	h, err := mmhash.NewHasher(mmhash.Options{})
	if err != nil {
		return err
	}
	procs := runtime.GOMAXPROCS(0)
	fmt.Printf("%9s  %9s %9s  %9s %9s %6s  %9s %9s %6s\n", "KiB", "Python µs", "median", "1 proc", "median", "ratio",
		fmt.Sprint(procs, " procs"), "median", "ratio")
	for _, kib := range o.Sizes {
		python, one, all, err := measure(peer, h, kib<<10, o.Rounds, procs)
		if err != nil {
			return err
		}
		fmt.Printf("%9d  %9.1f %9.1f  %9.1f %9.1f %6.2f  %9.1f %9.1f %6.2f\n", kib, python.least(), python.median(),
			one.least(), one.median(), python.least()/one.least(), all.least(), all.median(),
			python.least()/all.least())
	}
	fmt.Println("ratio: Python's least time over ours")
	return nil
}

// measure times rounds of all three in turns.
func measure(peer *process.Process, h *mmhash.Hasher, size, rounds, procs int) (python, one, all times, err error) {
	image := &mmhash.EncodedImage{Data: make([]byte, size)}
	for i := range image.Data {
		image.Data[i] = byte(i % 251)
	}
	args := []mmhash.Entry{{Key: "image", Value: image}, {Key: "model_id", Value: "Qwen/Qwen2-VL-7B-Instruct"}}
	var stream bytes.Buffer
	if err := mmhash.WriteStream(&stream, nil, args...); err != nil {
		return nil, nil, nil, err
	}
	at := bytes.Index(stream.Bytes(), image.Data)
	question := map[string]any{
		"before": stream.Bytes()[:at], "size": size, "after": stream.Bytes()[at+size:],
		"calls": max(1, (1<<20)/size),
	}
	calls := question["calls"].(int)
	ours := func(n int, to *times) (sum string, err error) {
		runtime.GOMAXPROCS(n)
		defer runtime.GOMAXPROCS(procs)
		var dst [64]byte
		for range calls {
			began := time.Now()
			hex, err := h.AppendHex(dst[:0], args...)
			*to = append(*to, time.Since(began))
			if err != nil {
				return "", err
			}
			sum = string(hex)
		}
		return sum, nil
	}
	for range rounds {
		if err := peer.Send(question); err != nil {
			return nil, nil, nil, err
		}
		var answer struct {
			Hex   string          `json:"hex"`
			Times []time.Duration `json:"times_ns"`
		}
		if err := peer.Receive(&answer); err != nil {
			return nil, nil, nil, err
		}
		python = append(python, answer.Times...)
		for _, turn := range []struct {
			procs int
			to    *times
		}{{1, &one}, {procs, &all}} {
			sum, err := ours(turn.procs, turn.to)
			if err != nil {
				return nil, nil, nil, err
			}
			if sum != answer.Hex {
				return nil, nil, nil, fmt.Errorf("%d bytes: our hash is %s, Python's %s", size, sum, answer.Hex)
			}
		}
	}
	return python, one, all, nil
}

// times are those of single calls.
type times []time.Duration

func (t times) least() float64 { return micros(slices.Min(t)) }

func (t times) median() float64 {
	sorted := slices.Sorted(slices.Values(t))
	return micros(sorted[len(sorted)/2])
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
