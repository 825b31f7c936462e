package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/process"
)

//go:embed peer.py
var peerScript string

// peer is a Python process with the arms that use PyTorch. peer.py describes the lines.
type peer struct {
	*process.Process
	versions map[string]string
	leftOut  map[string]string // reasons by arm
}

// errNoTorch reports that there is no PyTorch that can use the device. It wraps nothing: the text is the
// peer's.
type errNoTorch string

func (e errNoTorch) Error() string { return string(e) }

// openPeer starts the peer on a device of PyTorch. It fails with errNoTorch, or because something is broken.
func openPeer(ctx context.Context, python, device string) (*peer, error) {
	started, err := process.Start(exec.CommandContext(ctx, python, "-c", peerScript, device))
	if err != nil {
		return nil, err
	}
	var hello struct {
		Versions map[string]string `json:"versions"`
		Error    string            `json:"error"`
	}
	err = started.Receive(&hello)
	if err == nil && hello.Error != "" {
		err = errNoTorch(hello.Error)
	}
	if err != nil {
		return nil, errors.Join(err, started.Close())
	}
	return &peer{Process: started, versions: hello.Versions}, nil
}

// open makes the peer map the ring's file, with payloads up to the largest.
func (p *peer) open(path string, size, largest int) error {
	var a struct {
		LeftOut map[string]string `json:"left_out"`
	}
	err := p.ask(map[string]any{"op": "open", "path": path, "bytes": size, "largest": largest}, &a)
	p.leftOut = a.LeftOut
	return err
}

// ask sends a request and receives the answer.
func (p *peer) ask(request map[string]any, answer any) error {
	if err := p.Send(request); err != nil {
		return err
	}
	var line json.RawMessage
	if err := p.Receive(&line); err != nil {
		return err
	}
	var failed struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(line, &failed); err != nil {
		return err
	}
	if failed.Error != "" {
		return fmt.Errorf("%s: %s", request["op"], failed.Error)
	}
	return json.Unmarshal(line, answer)
}

// arms returns what the peer can measure.
func (p *peer) arms() (all []arm) {
	for _, name := range torchArms {
		if _, out := p.leftOut[name]; !out {
			all = append(all, torchArm{p, name})
		}
	}
	return all
}

// torchArm is an arm of the peer.
type torchArm struct {
	peer  *peer
	label string
}

func (a torchArm) name() string { return a.label }

func (a torchArm) measure(c cell, rounds int) (t timings, err error) {
	request := map[string]any{
		"op": "measure", "arm": a.label, "size": c.Size, "offset": c.Offset, "stride": slotsOf(0, c.Size).stride,
		"batch": c.Batch, "rounds": rounds,
	}
	return t, a.peer.ask(request, &t)
}

// startPeer starts the peer on the ring. It returns nil if there is no PyTorch that can use the
// device, and reports the arms as left out.
func (b *bench) startPeer(ctx context.Context, r *ring, largest int) (*peer, error) {
	if b.Python == "" {
		b.leaveOutArms("no interpreter was given (--python)")
		return nil, nil
	}
	p, err := openPeer(ctx, b.Python, fmt.Sprintf("cuda:%d", b.Device))
	if reason, ok := errors.AsType[errNoTorch](err); ok {
		b.leaveOutArms(string(reason))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if doubt := b.report.Machine.Doubt; doubt != "" {
		b.leaveOutArms(doubt)
		return nil, p.Close()
	}
	maps.Copy(b.report.Machine.Versions, p.versions)
	if err := p.open(r.path(), len(r.writer.Bytes()), largest); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for _, name := range slices.Sorted(maps.Keys(p.leftOut)) {
		b.report.leaveOut(name, p.leftOut[name])
	}
	return p, nil
}

func (b *bench) leaveOutArms(reason string) {
	for _, name := range torchArms {
		b.report.leaveOut(name, reason)
	}
	b.report.leaveOut("copies beside a multiplication", reason)
}
