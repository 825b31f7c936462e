package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// masked is a text without what may be a login or the parameters of a URL.
func masked(s string) string {
	start := len(schemes.FindString(s))
	if at := strings.LastIndex(s, "@"); at >= 0 {
		s = s[:start] + "***" + s[at:]
	}
	if i := strings.Index(s[start:], "?"); start > 0 && i >= 0 {
		s = s[:start+i] + "?***"
	}
	return s
}

// shown is a value for people, without what may be secret.
func shown(o Option, v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case bool:
		return strconv.FormatBool(v)
	case string:
		if o.Name == "runtime-plugin-config" {
			parsed, _ := parseJSON(v)
			d, _ := parsed.(dict)
			return shown(o, published(d))
		}
		return strconv.Quote(short(masked(v)))
	case map[string]any:
		return "{" + strings.Join(slices.Sorted(maps.Keys(v)), ", ") + "}"
	case []string:
		if o.Name == "l2-adapter" || o.Name == "l1-manager" {
			return fmt.Sprintf("%d of them", len(v))
		}
		all := make([]string, len(v))
		for i := range v {
			all[i] = masked(v[i])
		}
		return short(fmt.Sprintf("%q", all))
	}
	return short(fmt.Sprint(v))
}
