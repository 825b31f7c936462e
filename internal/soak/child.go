package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// childCommand runs one child of the supervisor.
type childCommand struct {
	Role  string       `arg:"" enum:"writer,reader,sender,receiver" help:"What the child is."`
	Store storeOptions `embed:""`
	Seed  uint64       `help:"Seed of its choices."`
	Life  int          `help:"Number of this writer, for the ids of its requests."`
	Adopt bool         `help:"Adopt the segment."`
	Plant string       `help:"Defect to plant."`
	Link  string       `help:"Socket between the two ends of the pair."`
}

// Run is called by kong.
func (c childCommand) Run() error {
	lines := make(chan message)
	go readOrders(os.Stdin, lines)
	var err error
	switch c.Role {
	case "writer":
		err = runWriter(c, lines)
	case "reader":
		err = runReader(c.Store, lines)
	case "sender":
		err = runSender(c, lines)
	case "receiver":
		err = runReceiver(c, lines)
	}
	if err != nil {
		fail(err)
	}
	return nil
}

// readOrders forwards the orders of the supervisor. The end of the stream means that the supervisor is dead:
// the child then ends at once, and the cleaner removes the segments.
func readOrders(from io.Reader, to chan<- message) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(3)
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			fail(fmt.Errorf("order %q: %w", line, err))
		}
		to <- m
	}
}

var reporting sync.Mutex

// report writes a line to the supervisor, unbuffered, so that a kill loses no line that was written before
// it.
func report(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	reporting.Lock()
	defer reporting.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(3) // the supervisor is gone
	}
}

// fail reports an error of the tested code, and ends the process.
func fail(err error) {
	var wrong wrongBytes
	report(message{Kind: "failed", Error: err.Error(), Wrong: errors.As(err, &wrong)})
	os.Exit(1)
}
