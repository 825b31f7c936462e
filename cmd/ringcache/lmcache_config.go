package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/lmcache/config"
)

type lmcacheConfigCommand struct {
	From      []string `arg:"" optional:"" name:"file" help:"LMCache's YAML; or -- and lmcache server's command line."`
	Environ   string   `placeholder:"FILE" help:"Environment of the engine or server: NAME=VALUE lines."`
	Connector string   `placeholder:"JSON" help:"kv_connector_extra_config of the engine."`
	Release   string   `placeholder:"RELEASE" help:"Release of lmcache server: 0.5.6, or 0.5.7 by default."`
	Workers   int      `default:"1" placeholder:"N" help:"Workers of the engine, each with max_local_cpu_size."`
	BlockSize int      `default:"16" placeholder:"N" help:"The engine's --block-size."`
	BlockHash string   `placeholder:"NAME" help:"The engine's --prefix-caching-hash-algo."`
	All       bool     `help:"Print all options of LMCache, and not only those that are given."`
}

// Help is the end of ringcache lmcache-config --help.
func (lmcacheConfigCommand) Help() string {
	return `It reads what LMCache 0.5.6 or 0.5.7 would read, and prints a file for ringcache serve --config. Its
comments say of each option what became of it, and warn of what costs hits:

    ringcache lmcache-config lmcache.yaml > ringcache.yaml
    ringcache lmcache-config --environ /proc/1234/environ lmcache.yaml
    ringcache lmcache-config -- lmcache server --l1-size-gb 8 --eviction-policy LRU \
        --l2-adapter '{"type": "fs", "base_path": "/srv/kv"}'

The environment of a running process is /proc/PID/environ, that of this one /proc/self/environ. Without a file, the
environment is everything, as for LMCache. What LMCache refuses is an error, and so is what it passes over: a name
that is no option, a value that it can't read, a key that is there twice. Nothing is opened but the files that are
named here, and no password is printed.

The exit status is 0 if a configuration was printed, and 78 if something is wrong with that of LMCache.`
}

// Run translates.
func (c lmcacheConfigCommand) Run() error {
	out, err := c.translate()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

func (c lmcacheConfigCommand) translate() ([]byte, error) {
	if c.Workers < 1 || c.BlockSize < 1 {
		return nil, errors.New("--workers and --block-size are at least 1")
	}
	loaded, err := c.load()
	if err != nil {
		return nil, statusError{err, badConfig}
	}
	if len(loaded.Problems) > 0 {
		var lines []string
		for _, p := range loaded.Problems {
			lines = append(lines, p.String())
		}
		return nil, statusError{errors.New(strings.Join(lines, "\n")), badConfig}
	}
	t := loaded.Translate(config.Engine{Workers: c.Workers, BlockSize: c.BlockSize, BlockHash: c.BlockHash})
	flags := map[string]string{}
	for _, p := range t.Settings {
		flags[p.Key] = p.Value
	}
	if _, err := load(daemon.Sources{Flags: flags}); err != nil {
		return nil, fmt.Errorf("this configuration of LMCache is none of the daemon: %w", err)
	}
	return t.YAML(c.All)
}

func (c lmcacheConfigCommand) load() (*config.Config, error) {
	environ, err := c.environ()
	if err != nil {
		return nil, err
	}
	words := c.From
	if len(words) > 1 && words[0] == "lmcache" && words[1] == "server" {
		words = words[2:]
		if len(words) == 0 {
			return config.LoadServer(c.Release, nil, environ)
		}
	}
	if len(words) > 1 || len(words) == 1 && strings.HasPrefix(words[0], "-") {
		return config.LoadServer(c.Release, words, environ)
	}
	s := config.Sources{Environ: environ, Connector: c.Connector}
	if len(words) == 1 {
		s.Name = words[0]
		if s.File, err = readSmall(s.Name); err != nil {
			return nil, err
		}
	}
	return s.Load()
}

// environ returns nil if none is named.
func (c lmcacheConfigCommand) environ() ([]string, error) {
	if c.Environ == "" {
		return nil, nil
	}
	b, err := readSmall(c.Environ)
	if err != nil {
		return nil, err
	}
	end := "\n"
	if bytes.IndexByte(b, 0) >= 0 {
		end = "\x00"
	}
	return strings.Split(string(b), end), nil
}

// readSmall reads a file that is no larger than a configuration. It is not nil if it is empty.
func readSmall(path string) ([]byte, error) {
	const most = 2 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s has more than %d bytes", terminal.Text(path), most)
	}
	return b, err
}
