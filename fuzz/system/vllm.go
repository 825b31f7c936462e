package system

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ringcache/ringcache/fuzz"
)

// VLLMOptions configure [StartVLLM].
type VLLMOptions struct {
	Python string // interpreter that can import vLLM, "python3" if empty
	// Path is a folder with the files of another release, which is put in front of the
	// interpreter's own; empty is the interpreter's own vLLM.
	Path  string
	Limit time.Duration // without a reply, after which it hangs; 2 minutes if 0
}

//go:embed vllm/*.py
var vllmFiles embed.FS

// VLLM is a process with vLLM's unmodified classes: rings, stores of the policy fifo, LRU caches, and
// mirrored caches. It refuses what would never return, with the kind "hang".
type VLLM struct {
	*process
	Release string // "0.32.0"
	// Python is the version of the interpreter, by which sizes of numbers differ.
	Python string
	// GrowAnew reports whether cachetools is older than version 8 (docs/agent.md, lru.new).
	GrowAnew bool

	folder, prefix string
}

// StartVLLM starts a Python process, which takes seconds. Its segments are removed by Close, also
// if the process was killed.
func StartVLLM(ctx context.Context, o VLLMOptions) (*VLLM, error) {
	if o.Python == "" {
		o.Python = "python3"
	}
	folder, err := os.MkdirTemp("", "ringcache-fuzz-")
	if err != nil {
		return nil, err
	}
	v := &VLLM{folder: folder, prefix: uniquePrefix()}
	command := []string{o.Python, filepath.Join(folder, "vllm", "vllm_agent.py"), v.prefix}
	if o.Path != "" {
		command = append(command, o.Path)
	}
	err = os.CopyFS(folder, vllmFiles)
	if err == nil {
		v.process, err = start(ctx, ProcessOptions{Limit: max(o.Limit, startLimit)}, command)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := v.about(); err != nil {
		_ = v.Close()
		return nil, fmt.Errorf("system: vLLM does not start with %s: %w", o.Python, err)
	}
	if v.limit = o.Limit; v.limit == 0 {
		v.limit = defaultLimit
	}
	return v, nil
}

// startLimit ends the import of torch and vLLM, which takes minutes on a busy machine.
const startLimit = 15 * time.Minute

// about asks for what is reported about the process.
func (v *VLLM) about() error {
	replies, err := v.Do([]fuzz.Op{{Name: "about"}})
	if err != nil {
		return err
	}
	f := replies[0].Fields
	v.Release, _ = f["version"].(string)
	v.Python, _ = f["python"].(string)
	v.GrowAnew, _ = f["grow_anew"].(bool)
	return nil
}

// Broken reports whether the process died, hung, or answered what is no reply.
func (v *VLLM) Broken() bool { return v.broken != nil }

// Close ends the process and removes what it left.
func (v *VLLM) Close() error {
	return errors.Join(v.process.Close(), removeSegments(v.prefix), os.RemoveAll(v.folder))
}
