package tiertest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// oddNames are names that file systems, URLs, patterns and separators are known to mix up.
func oddNames() []string {
	names := []string{
		".", "..", "...", "/", "//", "/a", "a/", "a", "A", "a/b", "a//b", "a/./b", "a/../b", "../a",
		"../../../../../../tmp/a", "./a",
		`a\b`, `..\a`, `C:\a`, "C:", "CON", "nul.txt", "a ", " a", "a.", "a\n", "\n", "a\r\nb", "\t", "\x01\x1f\x7f",
		"%2F", "%2f", "%", "a%00b", "+",
		"a+b", "a b", "a:b", "a|b", "a*b", "*", "?", "[a]", "{a}", "a;b", "a&b", "$HOME", "`a`", "~", "~root", "-rf",
		"--", "'", `"`, `''`, "\\", "#a", "@a", "a@b@c", "=", ",",
		"ä", "a\u0308", "\u00e4\u0301", "日本語", "😀", "\ufeffa", "\u202ea", "\u00a0", "\xff\xfe", "\xc3", "\xc3\x28",
		"null", "true", "0", "00", "1e3", "0x10", "nan",
		".tmp", "a.tmp", "tmp", ".lock", "index", "a.json", "a.safetensors", ".ringcache", "-", "_", "__proto__",
		"lost+found",
		strings.Repeat("n", tier.MaxName), strings.Repeat("/", tier.MaxName), strings.Repeat("ä", tier.MaxName/2),
		strings.Repeat("../", 341), strings.Repeat("N", tier.MaxName),
		strings.Repeat("n", tier.MaxName-1) + "m", strings.Repeat("n", tier.MaxName-1), strings.Repeat("n", 255),
		strings.Repeat("n", 256),
	}
	for c := 1; c < 256; c++ {
		names = append(names, "c"+string([]byte{byte(c)})+"c")
	}
	return names
}

// oddKeys: a name is any bytes, and no two of them meet.
func oddKeys(b *bed) {
	b.open(0)
	seen := map[string]bool{}
	var objects []tier.Object
	for i, name := range oddNames() {
		if !seen[name] {
			seen[name] = true
			o := object(name, int64(i%5))
			if i > 0 && oddNames()[i-1] != name {
				o.Parent = oddNames()[i-1]
			}
			objects = append(objects, o)
		}
	}
	b.put(objects...)
	b.get(objects...)
	b.has(objects...)
	for i, o := range objects {
		if i%2 == 0 {
			b.delete(o)
		}
	}
	var left []tier.Object
	for i, o := range objects {
		if i%2 == 1 {
			left = append(left, o)
			continue
		}
		b.gone(o)
	}
	b.get(left...)
	b.has(left...)
}

// spaces: the same name in two spaces is two objects, however the two are put together.
func spaces(b *bed) {
	b.open(0)
	pairs := [][2]string{
		{"", "a"}, {"a", "a"}, {"A", "a"}, {"b", "a"}, {"", "a/a"}, {"a", "/a"}, {"a/", "a"}, {"a/a", "a"},
		{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", "c"},
		{"a:b", "c"}, {"a", "b:c"}, {"a@b", "c"}, {"a", "b@c"}, {"a.b", "c"}, {"a", "b.c"}, {"a b", "c"},
		{"a", "b c"}, {"a\nb", "c"}, {"a", "b\nc"},
		{"..", "a"}, {".", "a"}, {"/", "a"}, {"../a", "a"}, {"*", "a"}, {"%2e%2e", "a"}, {"a%2Fb", "c"}, {"a/b", "c"},
		{"a", "b/c"}, {"ä", "a"}, {"\xff", "a"},
		{strings.Repeat("s", tier.MaxSpace), "a"}, {strings.Repeat("s", tier.MaxSpace-1) + "t", "a"},
		{strings.Repeat("/", tier.MaxSpace), strings.Repeat("/", tier.MaxName)},
		{strings.Repeat("ä", tier.MaxSpace/2), "a"}, {"s", "a"}, {"s\x01", "a"}, {"s\x1f", "a"},
	}
	var objects []tier.Object
	for i, p := range pairs {
		objects = append(objects, tier.Object{Key: tier.Key{Space: p[0], Name: p[1]}, Size: int64(10 + i)})
	}
	b.put(objects...)
	b.get(objects...)
	b.has(objects...)
	for _, o := range objects {
		if o.Space == "" {
			continue
		}
		list := b.list(o.Space)
		for _, other := range objects {
			if _, listed := list[other.Key]; listed != (other.Space == o.Space) {
				b.Fatalf("List of space %.60q: is %s in it: %v", o.Space, show(other.Key), listed)
			}
			delete(list, other.Key)
		}
		for k := range list {
			b.Fatalf("List of space %.60q has %s, which was never put", o.Space, show(k))
		}
	}
	if n := len(b.list("none")); n != 0 {
		b.Fatalf("List of a space without objects has %d", n)
	}
	for i, o := range objects {
		b.delete(o)
		b.gone(o)
		b.get(objects[i+1:]...)
	}
	b.has()
}

// descriptions: a level keeps all of a description, and does not look into the note.
func descriptions(b *bed) {
	b.open(0)
	note := make([]byte, tier.MaxNote)
	for i := range note {
		note[i] = byte(i)
	}
	objects := []tier.Object{
		{Note: nil},
		{Note: []byte{}},
		{Note: []byte{0}},
		{Note: []byte("\n\"{}\x00\xff")},
		{Note: note},
		{Tenant: "t"},
		{Tenant: strings.Repeat("t", tier.MaxTenant)},
		{Tenant: "a tenant/of ../\nthree\xff words"},
		{Parent: "p"},
		{Parent: strings.Repeat("p", tier.MaxName)},
		{Parent: "../\n\xffp"},
		{Cost: 1},
		{Cost: time.Hour + 1},
		{Cost: math.MaxInt64},
		{Note: note, Tenant: strings.Repeat("ä", tier.MaxTenant/2), Parent: strings.Repeat("/", tier.MaxName),
			Cost: math.MaxInt64, Key: tier.Key{Space: strings.Repeat("s", tier.MaxSpace),
				Name: strings.Repeat("n", tier.MaxName)}},
	}
	for i := range objects {
		if objects[i].Name == "" {
			objects[i].Key = key(fmt.Sprintf("%d", i))
		}
		objects[i].Size = int64(i * 100)
	}
	b.put(objects...)
	b.get(objects...) // with the description
	b.has(objects...) // of Stat and List
	for _, o := range objects {
		var seen tier.Object
		gets := []tier.Get{{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
			seen = x
			return make([]byte, x.Size), nil
		}}}
		b.l.Get(background, gets)
		b.is("Get with Into", gets[0].Err, nil)
		if err := described(seen, o); err != nil {
			b.Fatalf("Into: %v", err)
		}
	}
	b.delete(objects...)
	b.has()
}
