package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/doctor"
	"github.com/ringcache/ringcache/internal/terminal"
)

type doctorCommand struct {
	serveFlags
	Python []string `type:"path" placeholder:"FOLDER" help:"Python environment to search for vLLM and LMCache."`
	JSON   bool     `name:"json" help:"Print one JSON list."`
	Strict bool     `help:"Fail for warnings, too."`
}

// Help is the end of ringcache doctor --help.
func (doctorCommand) Help() string {
	return `It takes the settings of ringcache serve, by the same flags, file and variables: they are the plan. It
looks at all that ringcache serve check looks at (or, if a daemon runs, whether that answers), and at this machine:
the mount of shared memory and memory limits against the plan, locked memory, huge pages, RemoveIPC, split locks, the
releases of vLLM and LMCache, and what killed processes left. Each line begins with ok, warning or error, and the line
behind it is the command that repairs it, or makes something that is right better. It changes nothing.

The exit status is 0 without errors (and with --strict without warnings), 1 otherwise, 78 if the configuration is wrong,
and 80 if the command line is wrong.`
}

// Run looks at the machine.
func (c doctorCommand) Run() error {
	config, err := c.load()
	if err != nil {
		return err
	}
	var all []finding
	for _, f := range doctor.Run(context.Background(), doctor.Options{Config: config, Environments: c.Python}) {
		all = append(all, finding{levelWord(f.Level), f.About, f.Text, f.Command})
	}
	errs, warnings, err := printFindings(os.Stdout, all, c.JSON)
	switch {
	case err != nil:
		return err
	case errs > 0 || c.Strict && warnings > 0:
		return fmt.Errorf("%d errors, %d warnings", errs, warnings)
	case !c.JSON:
		_, err = fmt.Printf("no errors, %d warnings\n", warnings)
	}
	return err
}

// finding is one of serve check and doctor, as --json prints it.
type finding struct {
	Level   string `json:"level"` // ok, warning or error
	About   string `json:"about"` // a setting, or what was looked at
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

func findingOf(f daemon.Finding) finding { return finding{levelWord(f.Level), f.Key, f.Text, ""} }

func levelWord(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	}
	return "ok"
}

// printFindings prints what was found, and counts what is wrong.
func printFindings(to io.Writer, all []finding, asJSON bool) (errs, warnings int, err error) {
	colours := hasColour(to)
	for _, f := range all {
		switch f.Level {
		case "error":
			errs++
		case "warning":
			warnings++
		}
		if asJSON || err != nil {
			continue
		}
		word := f.Level
		if colours {
			word = paint(word, colourOf(word))
		}
		if f.About != "" {
			word += ": " + terminal.Lines(f.About)
		}
		_, err = fmt.Fprintf(to, "%s: %s\n", word, terminal.Lines(f.Text))
		if f.Command != "" && err == nil {
			_, err = fmt.Fprintf(to, "    %s\n", terminal.Text(f.Command))
		}
	}
	if asJSON {
		err = writeJSON(to, all)
	}
	return errs, warnings, err
}
