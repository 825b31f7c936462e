// Package measure is what those programs of bench have in common that measure a daemon in a process of its own: the way
// from flags to a table, children of the same program, and what a process takes.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Results are what a program with the options O has measured.
type Results[O any] interface {
	Write(w io.Writer, o O)
	Check(o O) error // whether a goal was missed
}

// Main reads the options, runs, and prints the table, or writes it to a file of the folder out, which is a field of
// the options. It ends the process if anything was wrong or missed.
func Main[O any, R Results[O]](o *O, out *string, about, file string, run func(context.Context, O) (R, error)) {
	k := kong.Parse(o, kong.Description(about))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, *o)
	stop()
	k.FatalIfErrorf(err)
	var table bytes.Buffer
	r.Write(&table, *o)
	if *out == "" {
		fmt.Print(table.String())
	} else {
		k.FatalIfErrorf(os.MkdirAll(*out, 0o755))
		k.FatalIfErrorf(os.WriteFile(filepath.Join(*out, file), table.Bytes(), 0o644))
	}
	k.FatalIfErrorf(r.Check(*o))
}

// AsChild runs the role that this process has if its only argument is one, and ends it. It returns if that is none.
func AsChild(roles map[string]func() error) {
	if len(os.Args) != 2 {
		return
	}
	role, ok := roles[os.Args[1]]
	if !ok {
		return
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// PrivateMemory returns the bytes that a process has for itself. process is its number, or "self".
func PrivateMemory(process string) (int64, error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("/proc/%s/status does not have RssAnon", process), err)
}
