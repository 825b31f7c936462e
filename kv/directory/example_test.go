package directory_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/kv/directory"
)

// Two instances report chunks; a router asks who has the most of a prompt.
func Example() {
	d := directory.New(directory.Options{})
	chain := []directory.Key{directory.NumberKey(11), directory.NumberKey(22), directory.NumberKey(33)}
	for instance, chunks := range map[string]int{"pod-1": 1, "pod-2": 3} {
		id := directory.ID{Instance: instance}
		if err := d.Register(directory.Worker{ID: id}); err != nil {
			log.Fatal(err)
		}
		var reports []directory.Report
		for i, k := range chain[:chunks] {
			reports = append(reports, directory.Report{Key: k, Number: int64(i)})
		}
		if err := d.Apply(id, "memory", reports); err != nil {
			log.Fatal(err)
		}
	}
	for _, p := range d.Find(chain, directory.Query{}) {
		fmt.Println(p.Instance, p.Chunks, "of", len(chain))
	}
	// Output:
	// pod-2 3 of 3
	// pod-1 1 of 3
}
