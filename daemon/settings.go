package daemon

import (
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setting is one field of Config.
type setting struct {
	key     string
	index   int
	bytes   bool // an int64 that is a number of bytes
	preset  string
	reloads bool
}

// settings are all fields of Config, in order.
var settings = func() []setting {
	var all []setting
	for f := range reflect.TypeFor[Config]().Fields() {
		if !f.IsExported() {
			continue
		}
		all = append(all, setting{
			key: f.Tag.Get("name"), index: f.Index[0], bytes: f.Tag.Get("is") == "bytes", preset: f.Tag.Get("default"),
			reloads: f.Tag.Get("reload") == "yes",
		})
	}
	return all
}()

// variable is the name of the environment variable of a key.
func variable(key string) string {
	return "RINGCACHE_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// split returns the elements of a list, which have commas between them; of any other setting its one text.
func (s setting) split(text string) []string {
	if _, isList := s.value(Config{}).([]string); isList {
		return strings.Split(text, ",")
	}
	return []string{text}
}

// set makes a text, or several of a list, the value of a setting.
func (s setting) set(c *Config, texts []string) error {
	field := reflect.ValueOf(c).Elem().Field(s.index)
	list, isList := field.Addr().Interface().(*[]string)
	if !isList && len(texts) != 1 {
		return fmt.Errorf("has %d values, and takes one", len(texts))
	}
	if isList {
		*list = nil
		for _, t := range texts {
			if t != "" {
				*list = append(*list, t)
			}
		}
		return nil
	}
	text := texts[0]
	switch v := field.Addr().Interface().(type) {
	case *string:
		*v = text
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is not true or false", text)
		}
		*v = text == "true"
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no time: write it as 30s, 5m or 1h30m", text)
		}
		*v = d
	case *int64: // all of them are bytes
		n, err := parseBytes(text)
		if err != nil {
			return err
		}
		*v = n
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		*v = n
	}
	return nil
}

// value returns the value as the field has it.
func (s setting) value(c Config) any { return reflect.ValueOf(c).Field(s.index).Interface() }

// texts returns the value of a setting as set takes it.
func (s setting) texts(c Config) []string {
	switch v := s.value(c).(type) {
	case []string:
		return v
	case time.Duration:
		return []string{formatTime(v)}
	case int64:
		return []string{formatBytes(v)}
	default:
		return []string{fmt.Sprint(v)}
	}
}

// units of sizes, the largest first: a size is printed in the first one that divides it.
var units = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}, // only read, as the next ones
	{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, // Kubernetes
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, // docker --shm-size, mount -o size, truncate
}

// parseBytes reads a size: a whole number of bytes, or any number with a unit, in capitals or not.
func parseBytes(text string) (int64, error) {
	number, unit := text, int64(1)
	for _, u := range units {
		if at := len(text) - len(u.name); at >= 0 && strings.EqualFold(text[at:], u.name) {
			number, unit = text[:at], u.size
			break
		}
	}
	number = strings.TrimSpace(number)
	wrong := fmt.Errorf("%q is no size: write it as 512MiB or 4GiB (512M and 4G are the same), or as a whole number of bytes", text)
	if number == "" || strings.Trim(number, "0123456789.") != "" || len(number) > 30 {
		return 0, wrong
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, wrong
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	if !r.IsInt() {
		return 0, fmt.Errorf("%q is no whole number of bytes", text)
	}
	if !r.Num().IsInt64() {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return r.Num().Int64(), nil
}

// formatBytes is the reverse of parseBytes.
func formatBytes(n int64) string {
	for _, u := range units[:4] {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// formatTime is a duration without the zeros that Go prints: 5m, not 5m0s.
func formatTime(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
