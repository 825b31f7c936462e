//go:build !linux

package daemon

// Hints looks at what a daemon of this configuration finds.
func (c Config) Hints() []Hint {
	var h hints
	h.add(true, "", "daemons run on Linux only")
	return h
}

func (c Config) checkRoom() error { return nil }
