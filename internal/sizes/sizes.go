// Package sizes writes numbers of bytes as people read them, and reads them as people write them.
package sizes

import "fmt"

// Text is a number of bytes in a text for people: 1.50 GiB. It is rounded, so where two numbers must be
// equal, print the numbers. Where one is above the other, use Above.
func Text[N int | int64 | uint64](n N) string {
	f := float64(n)
	switch {
	case f >= 1<<40:
		return fmt.Sprintf("%.2f TiB", f/(1<<40))
	case f >= 1<<30:
		return fmt.Sprintf("%.2f GiB", f/(1<<30))
	case f >= 1<<20:
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case f >= 10<<10:
		return fmt.Sprintf("%.1f KiB", f/(1<<10))
	case n == 1:
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// Above returns the texts of a number and a limit below it. They are exact where rounding would hide the difference.
func Above[N, M int | int64 | uint64](n N, limit M) (above, below string) {
	if difference := float64(n) - float64(limit); difference < float64(limit)/20 {
		return fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d bytes", limit)
	}
	return Text(n), Text(limit)
}
