package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// form is how a flag takes its value.
type form int

const (
	formValue  form = iota // one word behind it, or behind =; most flags
	formTrue               // none: it is true
	formBoth               // none, and --no-NAME is false
	formAppend             // one, each time that it is given
	formMany               // all words up to the next flag
)

// releases are those of LMCache whose command line is known.
var releases = []string{"0.5.6", "0.5.7"}

// LoadServer reads the command line of lmcache server, without these two words, and its environment, as
// Python's argparse reads it: flags may be shortened. release is 0.5.6 or 0.5.7, "" is the newest. What
// LMCache refuses is an error.
func LoadServer(release string, args, environ []string) (*Config, error) {
	if release == "" {
		release = releases[len(releases)-1]
	}
	c := &Config{server: true, environ: map[string]string{}, known: environ != nil}
	err := fmt.Errorf("the release %q is not one of %s", release, strings.Join(releases, ", "))
	if slices.Contains(releases, release) {
		err = c.loadServer(release, args, environ)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return c, nil
}

func (c *Config) loadServer(release string, args, environ []string) error {
	if err := c.readEnviron(environ); err != nil {
		return err
	}
	for _, o := range serverOptions {
		if o.in(release) {
			c.settings = append(c.settings, Setting{Option: o, Value: o.Default})
		}
	}
	for len(args) > 0 {
		n, err := c.flag(args)
		if err != nil {
			return err
		}
		args = args[n:]
	}
	if err := c.coordinatorEnviron(); err != nil {
		return err
	}
	return c.validateServer(release)
}

// negative are texts that argparse takes for a value in spite of the dash.
var negative = regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`)

// isFlag reports whether argparse takes a word for a flag, known or not.
func (c *Config) isFlag(word string) bool {
	if len(word) < 2 || word[0] != '-' || negative.MatchString(word) {
		return false
	}
	if !strings.Contains(word, " ") {
		return true
	}
	written, _, _ := strings.Cut(word, "=")
	_, _, err := c.named(strings.TrimPrefix(written, "--"))
	return !errors.Is(err, errNoFlag) && strings.HasPrefix(word, "--")
}

// errNoFlag says that a word is not even the beginning of a flag.
var errNoFlag = errors.New("no flag of lmcache server")

// flag reads the flag at the front of args, and returns how many words that takes.
func (c *Config) flag(args []string) (int, error) {
	if !c.isFlag(args[0]) || args[0] == "--" || !strings.HasPrefix(args[0], "--") {
		return 0, fmt.Errorf("%q is no flag of lmcache server", short(args[0]))
	}
	written, inline, hasInline := strings.Cut(args[0], "=")
	name, at, err := c.named(written[2:])
	if err != nil {
		return 0, err
	}
	behind := 1
	for behind < len(args) && !c.isFlag(args[behind]) {
		behind++
	}
	words := args[1:behind]
	at.Origin = "--" + name
	switch at.form {
	case formTrue, formBoth:
		if hasInline {
			return 0, fmt.Errorf("--%s takes no value", name)
		}
		at.Value = name == at.Name
		return 1, nil
	case formMany:
		if hasInline {
			words, behind = []string{inline}, 1
		}
		at.Value = slices.Clone(words)
		return behind, nil
	}
	if hasInline {
		words, behind = []string{inline}, 1
	} else if len(words) > 0 {
		words, behind = words[:1], 2
	}
	if len(words) == 0 {
		return 0, fmt.Errorf("--%s needs a value", name)
	}
	return behind, at.take(words[0])
}

// named finds a flag by its name or what it begins with. The name is no-NAME for the opposite of NAME.
func (c *Config) named(written string) (name string, at *Setting, err error) {
	found := map[string]*Setting{}
	if strings.HasPrefix("help", written) {
		found["help"] = nil
	}
	for i := range c.settings {
		s := &c.settings[i]
		names := append([]string{s.Name}, s.also...)
		if s.form == formBoth {
			names = append(names, "no-"+s.Name)
		}
		for _, n := range names {
			if n == written {
				return n, s, nil
			}
			if strings.HasPrefix(n, written) {
				found[n] = s
			}
		}
	}
	if len(found) == 1 {
		for n, s := range found {
			if s == nil {
				return "", nil, errors.New("--help is no configuration")
			}
			return n, s, nil
		}
	}
	if len(found) > 1 {
		return "", nil, fmt.Errorf("--%s is the beginning of %d flags", short(written), len(found))
	}
	for _, o := range serverOptions {
		if o.Name == written && o.since+o.until != "" {
			return "", nil, fmt.Errorf("--%s is %w, but it is one of LMCache %s", written, errNoFlag, o.since+o.until)
		}
	}
	return "", nil, fmt.Errorf("--%s is %w", short(written), errNoFlag)
}

// take makes a word the value of a flag.
func (s *Setting) take(word string) error {
	switch s.Type {
	case typeTexts:
		s.Value = append(slices.Clone(s.Value.([]string)), word)
		return nil
	case typeInt:
		n, _, err := value64(parseInt(word))
		if err != nil {
			return fmt.Errorf("--%s: %w", s.Name, err)
		}
		s.Value = n
	case typeFloat:
		f, err := parseFloat(word)
		if err != nil {
			return fmt.Errorf("--%s: %w", s.Name, err)
		}
		s.Value = f
	default:
		s.Value = word
	}
	if s.choices != nil && !slices.Contains(s.choices, word) {
		return fmt.Errorf("--%s: %q is not one of %s", s.Name, short(word), strings.Join(s.choices, ", "))
	}
	return nil
}

// coordinatorEnviron fills in what flags of the coordinator do not say, and variables and old flags do.
func (c *Config) coordinatorEnviron() error {
	fill := func(name, variable string, older string, preset any) error {
		at := c.at(name)
		if at.Value != nil {
			return nil
		}
		if older != "" && c.at(older).Value != nil {
			at.Value, at.Origin = c.at(older).Value, c.at(older).Origin
			return nil
		}
		at.Value = preset
		v, ok := c.environ[variable]
		if !ok {
			return nil
		}
		at.Origin = "the variable " + variable
		switch at.Type {
		case typeBool:
			at.Value = slices.Contains([]string{"1", "true", "yes"}, strings.ToLower(v))
		case typeFloat:
			if v == "" {
				return nil
			}
			f, err := parseFloat(v)
			if err != nil {
				return fmt.Errorf("%s: %w", variable, err)
			}
			at.Value = f
		default:
			at.Value = v
		}
		return nil
	}
	const prefix = "LMCACHE_COORDINATOR_"
	return errors.Join(
		fill("coordinator-url", prefix+"URL", "", ""),
		fill("coordinator-advertise-ip", prefix+"ADVERTISE_IP", "", ""),
		fill("coordinator-heartbeat-interval", prefix+"HEARTBEAT_INTERVAL", "", 5.0),
		fill("coordinator-event-reporting", prefix+"EVENT_REPORTING", "coordinator-l2-event-reporting", false),
		fill("coordinator-event-flush-interval", prefix+"EVENT_FLUSH_INTERVAL",
			"coordinator-l2-event-flush-interval", 1.0),
	)
}

// validateServer refuses what the server refuses before it opens anything, of what the daemon has, too.
func (c *Config) validateServer(release string) error {
	number := func(name string) float64 {
		switch n := c.at(name).Value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
		return 0
	}
	positive := func(names ...string) error {
		for _, n := range names {
			if v := number(n); !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("--%s is %v, and not a number above 0", n, v)
			}
		}
		return nil
	}
	if err := positive("grpc-server-workers", "coordinator-heartbeat-interval", "coordinator-event-flush-interval",
		"coordinator-blend-timeout", "coordinator-blend-match-concurrency"); err != nil {
		return err
	}
	if release >= "0.5.7" && number("chunk-size") < 1 {
		return errors.New("--chunk-size is less than 1")
	}
	reap, grace := number("worker-reap-timeout-seconds"), number("worker-registration-grace-seconds")
	if math.IsNaN(reap) || math.IsInf(reap, 0) || reap != 0 && reap < 30 {
		return fmt.Errorf("--worker-reap-timeout-seconds is %v, and not 0 or 30 and more", reap)
	}
	if math.IsNaN(grace) || math.IsInf(grace, 0) || grace < reap {
		return fmt.Errorf("--worker-registration-grace-seconds is %v, and not %v or more", grace, reap)
	}
	if plugins := c.at("runtime-plugin-config").Value.(string); plugins != "" {
		if _, err := parseJSON(plugins); err != nil {
			return fmt.Errorf("--runtime-plugin-config is no JSON: %w", err)
		}
	}
	if c.at("coordinator-event-transport").Value == "kafka" {
		for _, n := range []string{"coordinator-kafka-bootstrap-servers", "coordinator-kafka-topic"} {
			if strip(c.at(n).Value.(string)) == "" {
				return fmt.Errorf("--coordinator-event-transport kafka needs --%s", n)
			}
		}
		if err := positive("coordinator-kafka-delivery-timeout"); err != nil {
			return err
		}
	}
	given := func(n string) bool { return c.at(n).Value != nil }
	switch several := len(c.at("l1-manager").Value.([]string)) > 0; {
	case several && (given("l1-size-gb") || given("gds-l1-path") || given("l1-devdax-path")):
		return errors.New("--l1-manager is there, and another flag for the memory, too: use one of them")
	case !several && !(given("l1-size-gb") && given("eviction-policy")):
		return errors.New("lmcache server needs --l1-size-gb and --eviction-policy")
	}
	return nil
}
