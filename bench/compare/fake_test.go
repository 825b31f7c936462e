package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/ringcache/ringcache/engine/enginetest"
)

// TestMain makes this program the peers, too: where the options name it as the interpreter, and where it
// starts itself as the receiver of shmipc-go.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "--child":
		fatal(receiveShmipc(os.Args[2]))
	case len(os.Args) == 3 && os.Getenv(fakeEnv) != "":
		fatal(fakePeer())
	default:
		os.Exit(m.Run())
	}
}

const fakeEnv = "RINGCACHE_FAKE_PEER"

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakePeer answers as peer/peer.py does. Everything takes a microsecond, the job "fail" fails, and
// the job "end" ends the process.
func fakePeer() error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"versions": map[string]string{"vLLM": "fake"}}); err != nil {
		return err
	}
	each, done := map[int]bool{}, map[int]chan error{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r struct {
			Op    string
			ID, N int
			Case  Case
			More  map[string]string
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		a := map[string]any{}
		switch r.Op {
		case "prepare":
			each[r.ID] = single(r.Case.Job)
			if serve := fakeReceivers[r.More["way"]]; serve != nil {
				ended := make(chan error, 1)
				done[r.ID] = ended
				go func() { ended <- serve(r.More["endpoint"]) }()
			}
			switch r.Case.Job {
			case "fail":
				a["error"] = "as asked"
			case "end":
				return nil
			}
		case "run":
			n := 1
			if each[r.ID] {
				n = r.N
			}
			samples := make([]float64, n)
			for i := range samples {
				samples[i] = 1000
			}
			a["samples"] = samples
		case "close":
			if ended := done[r.ID]; ended != nil {
				if err := <-ended; err != nil {
					a["error"] = err.Error()
				}
			}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// fakeReceivers answer what is sent to them with the time.
var fakeReceivers = map[string]func(endpoint string) error{
	"ours": func(endpoint string) error {
		p, err := enginetest.Dealer(context.Background(), endpoint, "")
		if err != nil {
			return err
		}
		defer p.Close()
		for err := p.Send([]byte("hello")); err == nil; {
			var frames [][]byte
			if frames, err = p.Recv(); err != nil {
				return err
			}
			if len(frames) == 1 {
				return p.Send([]byte("end"))
			}
			err = p.Send(binary.LittleEndian.AppendUint64(nil, uint64(now())))
		}
		return err
	},
	"socket": func(endpoint string) error {
		c, err := net.Dial("unix", endpoint)
		if err != nil {
			return err
		}
		defer c.Close()
		for head := make([]byte, 8); ; {
			if _, err := io.ReadFull(c, head); err != nil {
				return nil // the sender has ended
			}
			if _, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint64(head))); err != nil {
				return err
			}
			if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, uint64(now()))); err != nil {
				return err
			}
		}
	},
}
