// Program resp times GET and SET of `ringcache serve --resp` beside redis-server: values of several sizes, by
// one connection and by 16, in turns, with one client that checks every length. It prints throughput, the
// 99th percentile of times, and ratios: also of what a call takes of the servers' processors, which depends
// less on what else the machine does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

func main() {
	rounds := flag.Int("rounds", 7, "turns of each server in each row")
	turn := flag.Duration("turn", 300*time.Millisecond, "length of a turn")
	only := flag.String("only", "", "ours or redis: only this server, such as for a profile")
	redis := flag.String("redis", "", "folder with the files of the package redis-server; else that of PATH")
	flag.Parse()
	if err := run(*rounds, *turn, *only, *redis); err != nil {
		fmt.Fprintln(os.Stderr, "resp:", err)
		os.Exit(1)
	}
}

// memory is what each server may have for values.
const memory = 512 << 20

func run(rounds int, turn time.Duration, only, redis string) (err error) {
	dir, err := os.MkdirTemp("/dev/shm", "rb") // memory, as in production
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.kill()
		}
	}()
	for _, start := range []func(dir, redis string) (*server, error){startOurs, startRedis} {
		s, err := start(dir, redis)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	fmt.Println("| operation | value | connections | ringcache | p99 | redis-server | p99 " +
		"| throughput | p99 | CPU of a call |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, op := range []string{"GET", "SET"} {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
			for _, conns := range []int{1, 16} {
				var results [2]result
				for range rounds {
					for i, s := range servers {
						if only != "" && only != s.name {
							continue
						}
						if err := results[i].add(s, op, size, conns, turn); err != nil {
							return fmt.Errorf("%s, %s of %d bytes: %w", s.name, op, size, err)
						}
					}
				}
				row(op, size, conns, &results)
			}
		}
	}
	return nil
}

// result is what a server did in its turns.
type result struct {
	rates []float64 // bytes/s of each turn
	times []float64 // seconds of each call
	cpu   float64   // seconds of the server's processors, in all turns
}

func (r *result) add(s *server, op string, size, conns int, turn time.Duration) error {
	before := s.processors()
	calls, took, err := s.load(op, size, conns, turn)
	r.cpu += s.processors() - before
	r.rates = append(r.rates, float64(len(calls)*size)/took.Seconds())
	for _, t := range calls {
		r.times = append(r.times, t.Seconds())
	}
	return err
}

func (r *result) p99() float64 {
	if len(r.times) == 0 {
		return 0
	}
	slices.Sort(r.times)
	return r.times[len(r.times)*99/100]
}

// perCall is what a call takes of the server's processors.
func (r *result) perCall() float64 { return r.cpu / float64(max(1, len(r.times))) }

// row prints a row of the table.
func row(op string, size, conns int, r *[2]result) {
	rate := [2]float64{stats.Median(r[0].rates), stats.Median(r[1].rates)}
	fmt.Printf("| %s | %d KiB | %d | %.0f MB/s | %.2f ms | %.0f MB/s | %.2f ms | %.2f | %.2f | %.2f |\n",
		op, size>>10, conns, rate[0]/1e6, r[0].p99()*1e3, rate[1]/1e6, r[1].p99()*1e3,
		rate[0]/rate[1], r[0].p99()/r[1].p99(), r[0].perCall()/r[1].perCall())
}
