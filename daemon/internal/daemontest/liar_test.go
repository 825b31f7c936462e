//go:build linux

package daemontest

import (
	"context"
	"encoding/json"
	"os"
)

// liarRole is a process that lies. It prints its counts.
type liarRole struct{ LieOptions }

func (r *liarRole) run() {
	counts, err := Lie(context.Background(), r.LieOptions)
	if err != nil {
		say("! %v", err)
		os.Exit(1)
	}
	b, err := json.Marshal(counts)
	if err != nil {
		panic(err)
	}
	say("%s", b)
}
