package daemon

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/sizes"
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
		n, err := sizes.Parse(text)
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
		return []string{sizes.Format(v)}
	default:
		return []string{fmt.Sprint(v)}
	}
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
