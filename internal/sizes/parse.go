package sizes

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

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

// Parse reads a size that somebody has written: a whole number of bytes, or any number with a unit, in capitals or not.
func Parse(text string) (int64, error) {
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

// Format writes a size so that Parse reads it.
func Format(n int64) string {
	for _, u := range units[:4] {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
