package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// cleanCommand is a process that removes the files of a soak once the supervisor and all of its children are
// dead. All of them have the other end of its standard input open, so it reads until the last one has ended.
type cleanCommand struct {
	Prefix string `help:"Path up to the beginning of the names to remove." required:""`
	Dir    string `help:"Folder to remove." required:""`
}

// Run is called by kong.
func (c cleanCommand) Run() error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return errors.Join(removeAll(c.Prefix), os.RemoveAll(c.Dir))
}

// leftFiles returns the files whose paths begin with a prefix.
func leftFiles(prefix string) []string {
	files, _ := filepath.Glob(prefix + "*") // a bad pattern is not possible: main checks the folder
	return files
}

func removeAll(prefix string) (err error) {
	for _, f := range leftFiles(prefix) {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

// startCleaner returns the file that all children must have open.
func startCleaner(prefix, dir string) (alive *os.File, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	end, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	cmd := exec.Command(self, "clean", "--prefix", prefix, "--dir", dir)
	cmd.Stdin = end
	if err := startDetached(cmd); err != nil {
		return nil, errors.Join(err, alive.Close())
	}
	return alive, cmd.Process.Release()
}
