//go:build linux

package sidecar_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// field is a row of a table of the document.
type field struct {
	at, size int
	text     string // of the last column
}

// format is the section Sidecar of the document.
type format struct {
	// The tables, by their heading; that of the whole file is "Sidecar".
	tables map[string][]field
	slots  int // of the sidecar whose numbers the tables have
}

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	product = regexp.MustCompile(`^(\d+) x (\d+|slots|objects)$`)
)

// readFormat parses the document for a sidecar of so many slots and objects.
func readFormat(t *testing.T, slots, objects int) *format {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "format.md"))
	require.NoError(t, err)
	f := &format{tables: map[string][]field{}, slots: slots}
	number := func(s string) int {
		sum := 0
		for _, term := range strings.Split(s, " + ") {
			if m := product.FindStringSubmatch(term); m != nil {
				m[2] = strings.NewReplacer("slots", strconv.Itoa(slots), "objects", strconv.Itoa(objects)).Replace(m[2])
				a, _ := strconv.Atoi(m[1])
				b, _ := strconv.Atoi(m[2])
				sum += a * b
				continue
			}
			n, err := strconv.Atoi(term)
			require.NoError(t, err, "%q in docs/format.md is no number", s)
			sum += n
		}
		return sum
	}
	section, inside, columns := "", false, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			section, columns = m[1], ""
			if strings.HasPrefix(line, "## ") {
				inside = section == "Sidecar"
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case !inside || len(cells) != 3 || !strings.HasPrefix(line, "|"):
			columns = ""
		case columns == "":
			columns = strings.TrimSpace(cells[0])
		case columns == "offset" && !strings.HasPrefix(cells[0], "---"):
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			f.tables[section] = append(f.tables[section], field{number(cells[0]), number(cells[1]), cells[2]})
		}
	}
	require.ElementsMatch(t, []string{"Sidecar", "Header", "State", "Slots", "Table"}, slices.Collect(maps.Keys(f.tables)))
	return f
}

// row returns the field of a table whose text begins so. There must be one, and one only.
func (f *format) row(table, text string) field {
	found := slices.DeleteFunc(slices.Clone(f.tables[table]), func(r field) bool { return !strings.HasPrefix(r.text, text) })
	if len(found) != 1 {
		panic(fmt.Sprintf("docs/format.md has %d rows %q in its table %s", len(found), text, table))
	}
	return found[0]
}

// found returns what a pattern captures in the text of a field.
func (f *format) found(table, text, pattern string) []string {
	r := f.row(table, text)
	m := regexp.MustCompile(pattern).FindStringSubmatch(r.text)
	if m == nil {
		panic(fmt.Sprintf("docs/format.md has %q in its table %s, want %s", r.text, table, pattern))
	}
	return m[1:]
}

// size returns the bytes of the file: where the last part ends.
func (f *format) size() int {
	parts := f.tables["Sidecar"]
	last := parts[len(parts)-1]
	return last.at + last.size
}

// sum returns the checksum that a field has in a part: of the bytes that its text names.
func (f *format) sum(part []byte, table, text string) uint32 {
	m := f.found(table, text, `checksum of bytes (\d+) to (\d+)`)
	from, _ := strconv.Atoi(m[0])
	to, _ := strconv.Atoi(m[1])
	return crc32c(part[from : to+1])
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// part returns the i-th part of a file that has a row of the first table to itself.
func (f *format) part(b []byte, text string, i, each int) []byte {
	r := f.row("Sidecar", text)
	return b[r.at+i*each : r.at+(i+1)*each]
}

func (f *format) header(b []byte) []byte { r := f.row("Sidecar", "header"); return b[r.at:][:r.size] }

func (f *format) state(b []byte, i int) []byte {
	r := f.row("Sidecar", fmt.Sprintf("state record %d", i))
	return b[r.at:][:r.size]
}

func (f *format) slot(b []byte, i int) []byte {
	return f.part(b, "reader slots", i, f.row("Sidecar", "reader slots").size/f.slots)
}

// mark returns the mark of slot i.
func (f *format) mark(b []byte, i int) []byte {
	r := f.row("Sidecar", "marks of the slots")
	return b[r.at:][:r.size][i : i+1]
}

// slotLock returns where the lock of a slot is: its first byte.
func (f *format) slotLock(i int) int64 {
	r := f.row("Sidecar", "reader slots")
	return int64(r.at + i*r.size/f.slots)
}

func (f *format) entry(b []byte, i int) []byte {
	r := f.tables["Table"]
	return f.part(b, "table of objects", i, r[len(r)-1].at+r[len(r)-1].size)
}

// put writes an integer into a field.
func (f *format) put(part []byte, table, text string, v uint64) {
	r := f.row(table, text)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(part[r.at:][:min(r.size, 8)], b[:])
}

// get reads an integer from a field.
func (f *format) get(part []byte, table, text string) uint64 {
	r := f.row(table, text)
	var b [8]byte
	copy(b[:], part[r.at:][:min(r.size, 8)])
	return binary.LittleEndian.Uint64(b[:])
}
