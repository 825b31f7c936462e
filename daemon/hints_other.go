//go:build !linux

package daemon

import (
	"context"
	"log/slog"
)

// Hints returns nothing.
func (c Config) Hints() []Finding { return nil }

// Check reports that there is no daemon here.
func (c Config) Check(context.Context) []Finding {
	return []Finding{{Level: slog.LevelError, Text: "daemons run on Linux only"}}
}

func checkRoom(c Config) error { return nil }

func tryFolder(string, bool) error { return nil }
