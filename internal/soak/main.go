package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type command struct {
	Run   runCommand   `cmd:"" default:"withargs" help:"Load, kill, compare."`
	Child childCommand `cmd:"" hidden:""`
	Clean cleanCommand `cmd:"" hidden:""`
}

// runCommand are the options of a soak.
type runCommand struct {
	Minutes   float64  `help:"How long to load; ending takes a little longer." default:"10"`
	Seed      uint64   `help:"Seed of all choices; 0 makes one up. What comes when differs all the same."`
	Processes int      `help:"Children at a time, about." default:"18"`
	Dir       string   `help:"Folder of shared memory." default:"/dev/shm" type:"existingdir"`
	Size      int      `help:"MiB of each of the five segments." default:"32"`
	Python    string   `help:"Python interpreter with numpy and msgspec, for readers of python/src: set PYTHONPATH."`
	Parts     []string `help:"Parts to run." enum:"steady,pool,fifo,bytes,cache,mirror" default:"steady,pool,fifo,bytes,cache,mirror"`
	Plant     string   `help:"Defect to plant, to show that it is found." enum:",descriptor,byte,loss" default:"" hidden:""`
}

// Validate is called by kong.
func (o runCommand) Validate() error {
	switch {
	case o.Minutes <= 0 || o.Minutes > 1e6:
		return errors.New("minutes must be above 0")
	case o.Processes < 1 || o.Size < 1:
		return errors.New("processes and size must be at least 1")
	case o.Python != "" && o.Dir != "/dev/shm":
		return errors.New("the Python package reads segments of /dev/shm only: leave out --dir or --python")
	case strings.ContainsAny(o.Dir, `*?[\`):
		return fmt.Errorf("dir %q has characters of a pattern", o.Dir)
	}
	return nil
}

func (o runCommand) duration() time.Duration { return time.Duration(o.Minutes * float64(time.Minute)) }

func main() {
	var c command
	k := kong.Parse(&c, kong.Name("soak"),
		kong.Description("Loads the whole core with processes that are killed, and compares every byte."))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
