package main

var (
	sizes = []int{4 * kib, 64 * kib, mib, 4 * mib, 24 * mib}
	few   = []int{4 * kib, mib, 24 * mib}
)

// sized returns the cases of a job by size and ring. A smoke run has the two sizes that show most.
func sized(job string, all []int, rings ...string) func(options) []Case {
	return func(o options) (cases []Case) {
		for _, ring := range rings {
			for _, size := range all {
				if o.Smoke && size != 4*kib && size != mib && len(all) > 2 || o.Smoke && ring == "cold" {
					continue
				}
				cases = append(cases, Case{Job: job, Size: size, Ring: ring, RingBytes: ringOf(o, size, ring)})
			}
		}
		return cases
	}
}

// ringOf returns the bytes of a ring by its name.
func ringOf(o options, size int, ring string) int {
	warm := max(8*(size+slack), mib)
	switch ring {
	case "warm":
		return warm
	case "cold":
		return max(o.ColdMiB*mib, warm)
	}
	return 0
}

func withLive(cases []Case, live int) []Case {
	for i := range cases {
		cases[i].Live = live
	}
	return cases
}

// living returns cases by the number of live objects, of 256 bytes each. A ring has room for a few more.
func living(job string) func(options) []Case {
	return func(o options) (cases []Case) {
		const room = 832 // of such an object with its metadata
		for live := 100; live <= o.LiveMax; live *= 10 {
			cases = append(cases, Case{Job: job, Size: 256, Live: live, RingBytes: live*room + 1<<16})
		}
		return cases
	}
}

func atMostLive(n int) func(Case) bool { return func(c Case) bool { return c.Live <= n } }

// parallel returns the cases by size and goroutines. A smoke run has one size.
func parallel(job string, all ...int) func(options) []Case {
	return func(o options) (cases []Case) {
		if o.Smoke {
			all = all[:1]
		}
		for _, size := range all {
			for _, n := range []int{1, 2, 4} {
				cases = append(cases, Case{Job: job, Size: size, Goroutines: n, Ring: "cold", RingBytes: 64 * mib})
			}
		}
		return cases
	}
}
