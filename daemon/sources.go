package daemon

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Sources are the texts of which a Config is made. What is given more directly wins: a flag, then the environment,
// then the file, then the default.
type Sources struct {
	// Flags are the values of flags by key, without dashes. Those that were not given are not in it. The elements of a
	// list have commas between them.
	Flags map[string]string
	// Environ is the environment, as os.Environ returns it. A variable that is empty counts as not set.
	Environ []string
	// File is the path of a YAML file; empty is that of RINGCACHE_CONFIG, or none.
	File string
}

// ConfigError reports everything that is wrong with a configuration.
type ConfigError struct {
	// Problems are one text each: where the value is from, what is wrong, and what to do.
	Problems []string
}

// Error lists all problems, a line each.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return "the configuration is wrong: " + e.Problems[0]
	}
	return fmt.Sprintf("the configuration is wrong in %d places:\n  %s",
		len(e.Problems), strings.Join(e.Problems, "\n  "))
}

// given is the text of a setting, or the texts of a list, and where they are from.
type given struct {
	texts  []string
	origin string
}

// problem is what is wrong with a setting.
type problem struct {
	key, text string
}

// Load makes a Config and validates it. It opens nothing but the file. The error is a [*ConfigError] with everything
// that is wrong.
func (s Sources) Load() (Config, error) {
	layers := map[string]given{}
	for _, x := range settings {
		layers[x.key] = given{x.split(x.preset), byDefault}
	}
	environ, problems := fromEnviron(s.Environ)
	file := s.File
	if file == "" {
		file = fileOf(s.Environ)
	}
	if file != "" {
		values, wrong := fromFile(file)
		problems = append(problems, wrong...)
		for key, v := range values {
			layers[key] = v
		}
	}
	for key, v := range environ {
		layers[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(s.Flags)) {
		text := s.Flags[key]
		if x := find(key); x != nil {
			layers[key] = given{x.split(text), "flag --" + key}
		} else {
			problems = append(problems, unknown("flag --"+key, key, "--%s"))
		}
	}
	var c Config
	given := func(key string) bool {
		texts := layers[key].texts
		return len(texts) > 0 && texts[0] != ""
	}
	if given("lmcache") {
		c.httpKey = fromLMCache(s.Environ, layers)
	}
	if given("resp") && layers["resp-password-file"].origin == byDefault {
		c.respPassword = secretOf(environment(s.Environ, "LMCACHE_RESP_PASSWORD"))
	}
	spoiled := map[string]bool{}
	for _, x := range settings {
		v := layers[x.key]
		if err := x.set(&c, v.texts); err != nil {
			problems = append(problems, fmt.Sprintf("%s (%s): %v", x.key, v.origin, err))
			spoiled[x.key] = true
		}
	}
	for _, p := range c.problems() {
		if !spoiled[p.key] {
			problems = append(problems, fmt.Sprintf("%s (%s): %s", p.key, layers[p.key].origin, p.text))
		}
	}
	if len(problems) > 0 {
		return Config{}, &ConfigError{problems}
	}
	return c, nil
}

// fromLMCache takes over what the environment has for LMCache's own server, where it means the same as one of our
// settings, which is not given. The key of HTTP, if it is in the environment itself, is no setting: those are printed.
func fromLMCache(environ []string, layers map[string]given) (key secret) {
	values := map[string]string{}
	for _, e := range environ {
		if name, text, _ := strings.Cut(e, "="); strings.HasPrefix(name, "LMCACHE_") && text != "" {
			values[name] = text
		}
	}
	first := func(names ...string) (string, string) {
		for _, name := range names {
			if values[name] != "" {
				return values[name], "variable " + name
			}
		}
		return "", ""
	}
	if level, origin := first("LMCACHE_LOG_LEVEL"); level != "" && layers["log-level"].origin == byDefault {
		level = strings.ToLower(level)
		if ours, ok := map[string]string{"warning": "warn", "critical": "error"}[level]; ok {
			level = ours
		}
		layers["log-level"] = given{[]string{level}, origin}
	}
	if layers["http-key-file"].origin != byDefault {
		return secret{}
	}
	if file, origin := first("LMCACHE_API_KEY_FILE", "LMCACHE_HTTP_API_KEY_FILE"); file != "" {
		layers["http-key-file"] = given{[]string{file}, origin}
	}
	text, _ := first("LMCACHE_API_KEY", "LMCACHE_HTTP_API_KEY")
	return secretOf(text)
}

// byDefault is the origin of a setting that is not given.
const byDefault = "default"

// fileVariable names the file. It is no setting.
const fileVariable = "RINGCACHE_CONFIG"

// fileOf returns the path of the file that the environment names.
func fileOf(environ []string) string { return environment(environ, fileVariable) }

// environment returns what the environment has for a name: the last one counts.
func environment(environ []string, name string) (text string) {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			text = value
		}
	}
	return text
}

// find returns the setting of a key, nil if there is none.
func find(key string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

// Variables with our prefix that others set: other parts of ringcache, and Kubernetes and Docker for a
// service or container whose name begins with "ringcache".
var othersVariables = regexp.MustCompile(`^RINGCACHE_((VLLM|TEST|INTEROP)_.*|KILL_AT|AGENT|CUDA_LIBRARY|(.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT(_.*)?|(.*_)?PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?|(.*_)?NAME_FROM_LINK)$`)

// fromEnviron returns what the environment has, by key.
func fromEnviron(environ []string) (values map[string]given, problems []string) {
	values = map[string]given{}
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, "RINGCACHE_")
		if !ours || text == "" || name == fileVariable || othersVariables.MatchString(name) {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if x := find(key); x != nil && variable(key) == name {
			values[key] = given{x.split(text), "variable " + name}
		} else {
			problems = append(problems, unknown("variable "+name, key, "RINGCACHE_%s"))
		}
	}
	slices.Sort(problems)
	return values, problems
}

// unknown is the problem of a name that is no setting's. form is how its source writes names.
func unknown(what, key, form string) string {
	near := nearest(key)
	if near == "" {
		return what + ": no setting has this name; `ringcache serve --help` lists all"
	}
	if strings.HasPrefix(form, "RINGCACHE_") {
		near = strings.TrimPrefix(variable(near), "RINGCACHE_")
	}
	return fmt.Sprintf("%s: no setting has this name; did you mean "+form+"?", what, near)
}

// nearest returns the key that is written most like a text, or none if none is like it.
func nearest(text string) string {
	best, least := "", len(text)/2+1
	for _, s := range settings {
		if d := distance(text, s.key); d < least {
			best, least = s.key, d
		}
	}
	return best
}

// distance is the number of bytes to insert, remove or replace that makes a of b. What is far longer than any
// key is far from all.
func distance(a, b string) int {
	if len(a) > 100 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
