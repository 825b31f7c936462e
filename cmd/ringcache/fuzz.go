package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/ringrules"
	"github.com/ringcache/ringcache/fuzz/system"
	"github.com/ringcache/ringcache/pycompat"
)

type fuzzCommand struct {
	Families  []string      `arg:"" optional:"" name:"family" help:"What to compare: ring, store, lru, pair, or all, which is the default."`
	Against   string        `default:"model" help:"What to compare with: vllm, model (the reference models), or a command that speaks the agent's protocol."`
	System    string        `placeholder:"COMMAND" help:"The system under test, a command that speaks the agent's protocol. Without it: this program's own packages."`
	Placement string        `enum:"vllm,own" default:"vllm" help:"Where chunks of a ring may lie: where vLLM has them, or wherever the system under test has its own. With own there is nothing to compare with: the family ring is tested by what holds for any correct ring."`
	Fifo      bool          `help:"With --placement own: the ring frees the oldest chunk first, and none before one that has to stay."`
	Without   []string      `placeholder:"NAME" help:"With --placement own: invariants that the ring is not meant to fulfil, such as stale-handle."`
	Lead      string        `enum:"auto,ours,model" default:"auto" help:"Whose replies are the right ones: those of the system under test, or of the model in its place. auto is the model for the rings and stores of vLLM 0.11.0 and its LRU caches up to 0.23, and else the system under test."`
	Ops       int           `help:"Perform at least so many operations of each family. Without it: 100000, or as many as --minutes allows."`
	Minutes   float64       `help:"Begin no sequence of a family later than so many minutes after its first."`
	Seed      uint64        `default:"1" help:"Seed of the first sequence. Each further sequence has the next number."`
	Length    int           `default:"200" help:"Generate so many operations for each sequence. Those that look at the state are added."`
	Release   string        `help:"Release of vLLM whose rules count. Without it: the release of --against vllm, or else the newest known one."`
	Python    string        `default:"python3" help:"Interpreter that can import vLLM."`
	VllmPath  string        `placeholder:"DIR" help:"Folder with the files of another release of vLLM than the interpreter's own."`
	Replay    string        `placeholder:"FILE" help:"Generate nothing: perform the agent lines of a file, and print what both systems reply."`
	Limit     time.Duration `default:"2m" help:"Report a process that gives no reply for so long as one that hangs."`
}

// Help is the end of ringcache fuzz --help.
func (fuzzCommand) Help() string {
	return `Generates sequences of operations, performs each on two systems, and compares their replies and states. The
first difference is printed as the shortest sequence of agent lines that shows it, with both replies and the
command that finds it again.

The families are ring (the ring alone), store (stores of the policy fifo with their readers), lru, and pair
(the mirrored caches).

A command is run by the shell. It reads one JSON object per line from stdin and writes one per line to stdout,
as ringcache agent does (docs/agent.md).

With --placement own a system needs the operations ring.fill and ring.peek, too; docs/test-your-own-ring.md
lists the invariants, and examples/ringtest/agent.py is a system in Python to copy.

Progress goes to stderr, and one line for each family to stdout.

The exit status is 0 if there was no difference, 1 if there was one or a system broke, and 80 if the command
line is wrong.`
}

// Validate is called by kong.
func (c fuzzCommand) Validate() error {
	switch {
	case c.Ops < 0 || c.Length < 1:
		return errors.New("--ops must not be below 0, and --length not below 1")
	case !(c.Minutes >= 0): // nor NaN
		return errors.New("--minutes must not be below 0")
	case c.Limit <= 0:
		return errors.New("--limit must be above 0")
	case c.Placement != "own" && (c.Fifo || len(c.Without) > 0):
		return errors.New("--fifo and --without need --placement own")
	case c.Placement == "own" && (c.Against != "model" || c.Lead != "auto" || c.Release != ""):
		return errors.New("--placement own compares with nothing: leave out --against, --lead and --release")
	case c.Placement == "own" && (len(c.Families) > 1 || len(c.Families) == 1 && c.Families[0] != "ring"):
		return errors.New("--placement own is for the family ring")
	}
	names := c.invariants()
	for _, name := range c.Without {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--without: there is no invariant %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// invariants returns the names of those that --placement own checks.
func (c fuzzCommand) invariants() []string {
	checked, _ := ringrules.Options{FIFO: c.Fifo}.Checked() // the error would be about Without
	var names []string
	for _, i := range checked {
		names = append(names, i.Name)
	}
	return names
}

// Run compares, or replays.
func (c fuzzCommand) Run() error {
	ctx, stop := interruptible()
	defer stop()
	if c.Placement == "own" {
		return c.ownPlacement(ctx)
	}
	families, err := c.families()
	if err != nil {
		return err
	}
	systems, err := c.systems(ctx)
	if err != nil {
		return err
	}
	if c.Replay != "" {
		return errors.Join(c.replay(ctx, systems), systems.close())
	}
	var errs []error
	for _, family := range families {
		errs = append(errs, c.compare(ctx, systems, family))
	}
	return errors.Join(append(errs, systems.close())...)
}

func (c fuzzCommand) families() ([]system.Family, error) {
	every := system.Families()
	if len(c.Families) == 0 || slices.Contains(c.Families, "all") {
		return every, nil
	}
	var out []system.Family
	for _, name := range c.Families {
		i := slices.IndexFunc(every, func(f system.Family) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no family %q: want ring, store, lru, pair or all", name)
		}
		out = append(out, every[i])
	}
	return out, nil
}

// compare runs one family until there is a difference.
func (c fuzzCommand) compare(ctx context.Context, s *fuzzSystems, family system.Family) error {
	c.Ops = c.atLeast()
	began := time.Now()
	d := system.Differential{
		Family: family, Case: s.caseOf(family), Lead: s.lead(family), Follower: s.follower(family),
		LeadName: s.leadName(family), FollowerName: c.Against,
		Seed: c.Seed, Ops: c.Ops, Length: c.Length,
		Repeat:   func(seed uint64) string { return c.repeat(family, s.release.Version, seed) },
		Progress: showProgress(family.Name+" "+s.release.Version, began),
		Until:    c.until(began),
	}
	r, err := d.Run(ctx)
	if err != nil {
		return err
	}
	differences := 0
	if r.Failure != nil {
		fmt.Println(r.Failure)
		differences = 1
	}
	fmt.Printf("%s, vLLM %s, %s against %s: %d operations in %d sequences%s, seeds %d to %d, %.1f seconds, %.0f a second, %d differences\n",
		family.Name, s.release.Version, s.leadName(family), c.Against, r.Ops, r.Sequences, parted(r.Parted), r.First,
		r.Last,
		time.Since(began).Seconds(), perSecond(r.Ops, began), differences)
	switch broken := (*system.BrokenError)(nil); {
	case r.Failure == nil && r.Ops == 0:
		return fmt.Errorf("%s: nothing was compared", family.Name)
	case r.Failure == nil:
		return nil
	case errors.As(r.Failure, &broken):
		return fmt.Errorf("%s: a system broke", family.Name)
	}
	return fmt.Errorf("%s: the systems differ", family.Name)
}

// atLeast is how many operations of a family are performed.
func (c fuzzCommand) atLeast() int {
	switch {
	case c.Ops > 0:
		return c.Ops
	case c.Minutes > 0:
		return math.MaxInt
	}
	return 100000
}

// until returns when no further sequence begins; zero without --minutes.
func (c fuzzCommand) until(began time.Time) time.Time {
	if c.Minutes == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(c.Minutes * float64(time.Minute)))
}

// showProgress returns a function that prints the operations so far, at most every ten seconds.
func showProgress(what string, began time.Time) func(system.Result) {
	shown := began
	return func(r system.Result) {
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(os.Stderr, "%s: %d operations, %.0f a second\n", what, r.Ops, perSecond(r.Ops, began))
		}
	}
}

// ownPlacement tests a ring by what holds for any correct one.
func (c fuzzCommand) ownPlacement(ctx context.Context) error {
	began := time.Now()
	name := cmp.Or(c.System, "ours")
	r := system.Rings{
		Start:   c.underTest,
		Options: ringrules.Options{FIFO: c.Fifo, Without: c.Without, Seed: c.Seed, Ops: c.atLeast(), Length: c.Length},
		Repeat: func(seed uint64) string {
			return commandLine(append(append([]string{"ringcache", "fuzz", "ring"}, c.ownFlags()...), c.from(seed)...))
		},
		Progress: showProgress("ring, own placement", began),
		Until:    c.until(began),
	}
	if c.Replay != "" {
		ops, err := readLines(c.Replay)
		if err != nil {
			return err
		}
		failure, err := r.Replay(ctx, ops)
		if err != nil || failure == nil {
			if err == nil {
				fmt.Printf("%d operations, nothing found\n", len(ops))
			}
			return err
		}
		fmt.Println(failure)
		return fmt.Errorf("ring: %s", failure.Invariant)
	}
	result, err := r.Run(ctx)
	if err != nil {
		return err
	}
	found := "nothing found"
	if result.Failure != nil {
		fmt.Println(result.Failure)
		found = "found " + result.Failure.Invariant
	}
	fmt.Printf("ring, own placement, %s: %d operations in %d sequences, seeds %d to %d, %.1f seconds, %.0f a second, %s\n",
		name, result.Ops, result.Sequences, result.First, result.Last, time.Since(began).Seconds(),
		perSecond(result.Ops, began), found)
	if result.Failure != nil {
		return fmt.Errorf("ring: %s", result.Failure.Invariant)
	}
	return nil
}

func (c fuzzCommand) ownFlags() []string {
	words := []string{"--placement", "own"}
	if c.Fifo {
		words = append(words, "--fifo")
	}
	for _, name := range c.Without {
		words = append(words, "--without", name)
	}
	if c.System != "" {
		words = append(words, "--system", c.System)
	}
	return words
}

// from returns the flags for the sequence of a seed.
func (c fuzzCommand) from(seed uint64) []string {
	return []string{"--length", fmt.Sprint(c.Length), "--seed", fmt.Sprint(seed), "--ops", "1"}
}

// readLines reads the file of --replay.
func readLines(file string) ([]fuzz.Op, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	ops, err := fuzz.Parse(string(text))
	if err == nil && len(ops) == 0 {
		err = fmt.Errorf("%s contains no operation", file)
	}
	return ops, err
}

// parted lists why sequences were not compared to their end.
func parted(reasons map[string]int) string {
	var words []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		words = append(words, fmt.Sprintf("%d of them until %s", reasons[why], why))
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func perSecond(n int, since time.Time) float64 { return float64(n) / time.Since(since).Seconds() }

// repeat returns the command that performs the sequence of a seed again.
func (c fuzzCommand) repeat(family system.Family, release string, seed uint64) string {
	words := []string{"ringcache", "fuzz", family.Name, "--release", release, "--against", c.Against, "--lead", c.Lead}
	if c.System != "" {
		words = append(words, "--system", c.System)
	}
	if c.Against == "vllm" {
		words = append(words, "--python", c.Python)
		if c.VllmPath != "" {
			words = append(words, "--vllm-path", c.VllmPath)
		}
	}
	return commandLine(append(words, c.from(seed)...))
}

// commandLine quotes words for a shell.
func commandLine(words []string) string {
	for i, w := range words {
		if strings.ContainsAny(w, " \t'\"$&|;<>*?()\\") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// replay performs the lines of a file, and prints what both systems reply.
func (c fuzzCommand) replay(ctx context.Context, s *fuzzSystems) error {
	ops, err := readLines(c.Replay)
	if err != nil {
		return err
	}
	family, err := system.FamilyOf(ops[0])
	if err != nil {
		return err
	}
	d := system.Differential{
		Family: family, Case: s.caseOf(family), Lead: s.lead(family), Follower: s.follower(family),
		LeadName: s.leadName(family), FollowerName: c.Against,
	}
	performed, differences := 0, 0
	err = d.Replay(ctx, ops, func(op fuzz.Op, want, got fuzz.Reply, what string) {
		performed++
		fmt.Printf("%s\n  %s: %s\n  %s: %s\n", op.Line(), s.leadName(family), want, c.Against, got)
		if what != "" {
			differences++
			fmt.Printf("  different: %s\n", what)
		}
	})
	fmt.Printf("%d operations, %d differences\n", performed, differences)
	if err == nil && differences > 0 {
		err = errors.New("the systems differ")
	}
	return err
}

// fuzzSystems starts the systems that a command line names.
type fuzzSystems struct {
	command fuzzCommand
	release model.Release
	// vllm is one process for all families, since its start takes long.
	vllm *system.VLLM
	// growAnew and python are those of vLLM.
	growAnew bool
	python   string
}

func (c fuzzCommand) systems(ctx context.Context) (*fuzzSystems, error) {
	s := &fuzzSystems{command: c}
	if c.Against == "model" && c.Lead == "model" {
		return nil, errors.New("the model against itself proves nothing: change --lead or --against")
	}
	version := c.Release
	if c.Against == "vllm" {
		v, err := s.startVLLM(ctx)
		if err != nil {
			return nil, err
		}
		if version == "" {
			version = v.Release
		}
		if version != v.Release {
			return nil, errors.Join(fmt.Errorf("this is vLLM %s, not %s: see --python and --vllm-path", v.Release,
				version), v.Close())
		}
		s.vllm, s.growAnew, s.python = v, v.GrowAnew, v.Python
	}
	if version == "" {
		version = pycompat.Newest().Version
	}
	var err error
	if s.release, err = model.Lookup(version); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *fuzzSystems) startVLLM(ctx context.Context) (*system.VLLM, error) {
	return system.StartVLLM(ctx, system.VLLMOptions{Python: s.command.Python, Path: s.command.VllmPath,
		Limit: s.command.Limit})
}

// livingVLLM returns the process of vLLM, and starts it again if it broke.
func (s *fuzzSystems) livingVLLM(ctx context.Context) (fuzz.System, error) {
	if s.vllm.Broken() {
		v, err := s.startVLLM(ctx)
		if err != nil {
			return nil, err
		}
		_ = s.vllm.Close() // what broke it was reported
		s.vllm = v
	}
	return shared{s.vllm}, nil
}

// shared is a system that the next comparison uses again, so Close does nothing.
type shared struct{ fuzz.System }

func (shared) Close() error { return nil }

func (s *fuzzSystems) close() error {
	if s.vllm == nil {
		return nil
	}
	return s.vllm.Close()
}

func (s *fuzzSystems) leadName(f system.Family) string {
	switch {
	case s.modelLeads(f):
		return "model"
	case s.command.System != "":
		return s.command.System
	}
	return "ours"
}

// modelLeads: a real 0.11.0 has a defect (first_release of docs/hazards.md) that this module does
// not reproduce, and so has the touch of an LRU cache up to 0.23.
func (s *fuzzSystems) modelLeads(f system.Family) bool {
	if s.command.Lead != "auto" {
		return s.command.Lead == "model"
	}
	if s.command.Against != "vllm" {
		return false
	}
	return s.release.PhantomStart && (f.Name == "ring" || f.Name == "store") || s.release.GhostTouch && f.Name == "lru"
}

func (s *fuzzSystems) caseOf(f system.Family) system.Case {
	vllm := s.command.Against == "vllm"
	return system.Case{
		Release: s.release, VLLM: vllm, Ours: !vllm || !s.modelLeads(f), GrowAnew: s.growAnew, Python: s.python,
	}
}

func (s *fuzzSystems) lead(f system.Family) func(context.Context) (fuzz.System, error) {
	return func(ctx context.Context) (fuzz.System, error) {
		if s.modelLeads(f) {
			return f.Model(s.caseOf(f)), nil
		}
		return s.command.underTest(ctx)
	}
}

func (s *fuzzSystems) follower(f system.Family) func(context.Context) (fuzz.System, error) {
	return func(ctx context.Context) (fuzz.System, error) {
		switch s.command.Against {
		case "model":
			return f.Model(s.caseOf(f)), nil
		case "vllm":
			return s.livingVLLM(ctx)
		}
		return s.command.start(ctx, s.command.Against)
	}
}

// underTest starts the system under test.
func (c fuzzCommand) underTest(ctx context.Context) (fuzz.System, error) {
	if c.System == "" {
		return system.Agent(), nil
	}
	return c.start(ctx, c.System)
}

// start starts a command by the shell, which the command replaces.
func (c fuzzCommand) start(ctx context.Context, command string) (fuzz.System, error) {
	shell := []string{"sh", "-c", "exec " + command}
	if runtime.GOOS == "windows" {
		shell = strings.Fields(command)
	}
	return system.Start(ctx, system.ProcessOptions{Limit: c.Limit}, shell...)
}
