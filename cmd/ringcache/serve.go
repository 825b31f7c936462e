package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/ringcache/ringcache/daemon"
)

type serveCommand struct {
	serveFlags
	PrintConfig bool `help:"Print the configuration as a file for --config, and end."`

	Run    serveRun    `cmd:"" default:"1" hidden:"" help:"Run the daemon."`
	Status serveStatus `cmd:"" help:"Show what a running daemon has: levels, leases and who holds them."`
	Check  serveCheck  `cmd:"" help:"Check the configuration, and whether this machine or container suits it."`
}

// Help is the end of ringcache serve --help.
func (serveCommand) Help() string {
	return `Every setting is a flag, a key in the YAML file of --config, and a variable: --disk-size is disk-size: 100GiB
in the file, and RINGCACHE_DISK_SIZE. A flag wins over a variable, a variable over the file, and the file over
the default. Names that are no settings are refused. RINGCACHE_CONFIG names the file, too.

SIGTERM and SIGINT end the daemon: it takes no more requests, does the pending writes to lower levels, for as
long as --drain allows, and closes everything. A second signal ends it at once. SIGHUP makes it read its
configuration again. Whatever ends it, even SIGKILL, the next daemon goes on with all objects and leases.

The exit status is 0 after SIGTERM or SIGINT, 78 if the configuration is wrong, 80 if the command line is, and
1 after any other error.`
}

// serveFlags are the sources of a configuration on a command line. Settings stand for all fields of
// daemon.Config.
type serveFlags struct {
	Config   string       `type:"path" placeholder:"FILE" help:"YAML file with settings."`
	Settings kong.Plugins `embed:""`
}

// settings is a flag for each field of daemon.Config, nil unless given: package daemon handles values,
// defaults and precedence.
func settings() kong.Plugins {
	var flags []reflect.StructField
	for f := range reflect.TypeFor[daemon.Config]().Fields() {
		if !f.IsExported() {
			continue
		}
		kind, help := reflect.TypeFor[*string](), f.Tag.Get("help")
		switch f.Type.Kind() {
		case reflect.Bool:
			kind = reflect.TypeFor[*bool]()
		case reflect.Slice:
			kind = f.Type
		}
		if preset := f.Tag.Get("default"); preset != "" && preset != "0" && preset != "false" {
			help += " Default " + preset + "."
		}
		tag := fmt.Sprintf("name:%q help:%q", f.Tag.Get("name"), help)
		if p := f.Tag.Get("placeholder"); p != "" {
			tag += fmt.Sprintf(" placeholder:%q", p)
		} else {
			tag += ` negatable:""`
		}
		flags = append(flags, reflect.StructField{Name: f.Name, Type: kind, Tag: reflect.StructTag(tag)})
	}
	return kong.Plugins{reflect.New(reflect.StructOf(flags)).Interface()}
}

// sources returns what the command line and the environment have.
func (c serveFlags) sources() daemon.Sources {
	s := daemon.Sources{Flags: map[string]string{}, Environ: os.Environ(), File: c.Config}
	values := reflect.ValueOf(c.Settings[0]).Elem()
	for f, v := range values.Fields() {
		switch list, isList := v.Interface().([]string); {
		case v.IsNil():
		case isList:
			s.Flags[f.Tag.Get("name")] = strings.Join(list, ",")
		default:
			s.Flags[f.Tag.Get("name")] = fmt.Sprint(v.Elem())
		}
	}
	return s
}

// statusError is an error with the exit status of the process.
type statusError struct {
	error
	status int
}

func (e statusError) ExitCode() int { return e.status }
func (e statusError) Unwrap() error { return e.error }

// badConfig is the exit status of a wrong configuration, EX_CONFIG of sysexits: a service manager need not
// try again.
const badConfig = 78

func (c serveFlags) load() (daemon.Config, error) { return load(c.sources()) }

// load makes a configuration. What is wrong with it has an exit status of its own.
func load(s daemon.Sources) (daemon.Config, error) {
	config, err := s.Load()
	if wrong := (*daemon.ConfigError)(nil); errors.As(err, &wrong) {
		err = statusError{err, badConfig}
	}
	return config, err
}

type serveRun struct{}

// Run runs the daemon.
func (serveRun) Run(c *serveCommand) error {
	config, err := c.load()
	if err != nil {
		return err
	}
	if c.PrintConfig {
		text, err := config.YAML()
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	}
	// The reader of the log may close it: writes to stderr then fail, and must not end the daemon.
	signal.Ignore(syscall.SIGPIPE)
	info, _ := debug.ReadBuildInfo()
	version, _, _ := strings.Cut(versionText(info), ",")
	return daemon.Run(context.Background(), daemon.RunOptions{
		Config: config, Reload: c.sources().Load, Version: strings.TrimPrefix(version, "ringcache "), Log: os.Stderr,
	})
}

type serveCheck struct {
	JSON bool `name:"json" help:"Print one JSON list."`
}

// Help is the end of ringcache serve check --help.
func (serveCheck) Help() string {
	return `It looks at everything that the daemon opens: descriptors, the segment, the disk, the Redis, the socket,
certificates, and the addresses of HTTP and of profiles, each with a line that begins with ok, warning or error. What the daemon only warns about,
such as a Redis that does not answer, is a warning. It leaves nothing behind, and makes no segment and no
socket. A daemon may run meanwhile: then what that has is an error, since a second one could not start.

What is damaged within a segment or a disk it does not find: that costs the daemon objects, not its start.
What another program takes meanwhile is not found, either.

The exit status is 0 if nothing was found that would keep the daemon from starting, 78 if the configuration is
wrong, and 1 if something else is in its way.`
}

// Run prints what a daemon would find.
func (s serveCheck) Run(c *serveCommand) error {
	config, err := c.load()
	if err != nil {
		return err
	}
	var all []finding
	for _, f := range config.Check(context.Background()) {
		all = append(all, findingOf(f))
	}
	errs, warnings, err := printFindings(os.Stdout, all, s.JSON)
	text := "the configuration is right, and nothing is in the way of a daemon"
	switch {
	case err != nil:
		return err
	case errs > 0:
		return fmt.Errorf("the daemon can't start: %d errors", errs)
	case s.JSON:
		return nil
	case warnings > 0:
		text += fmt.Sprintf("; %d warnings", warnings)
	}
	_, err = fmt.Println(text)
	return err
}
