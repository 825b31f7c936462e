package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// demo plays clients of the server: it shows every photo several times, gives some
// requests up, kills the engine and goes on.
func demo(ctx context.Context, out io.Writer, s *server, url, photos string) error {
	files, err := demoPhotos(photos)
	if err != nil {
		return err
	}
	d := &demonstration{out: out, s: s, url: url}
	fmt.Fprintln(out, "starting the engine ...")
	if err := d.ready(ctx); err != nil {
		return err
	}
	st := s.stats()
	fmt.Fprintf(out, "vLLM %s, %d worker(s), cache %s\n\n%-24s %12s %12s   tokens\n", st.Version, st.Workers, s.o.Cache, "photo", "first ms", "again ms")
	answers := map[string]string{}
	for _, f := range files {
		first, t1, err := d.ask(ctx, f.data)
		if err != nil {
			return err
		}
		again, t2, err := d.ask(ctx, f.data)
		if err != nil {
			return err
		}
		if first != again {
			return fmt.Errorf("%s: %s, then %s", f.name, first, again)
		}
		answers[f.name] = first
		fmt.Fprintf(out, "%-24s %12.1f %12.1f   %s\n", f.name, ms(t1), ms(t2), first)
	}
	if err := d.crowd(ctx, files, answers); err != nil {
		return err
	}
	before := s.stats()
	fmt.Fprintf(out, "\nkilling the engine, with a request in it: ")
	if err := d.kill(ctx, files[0].data); err != nil {
		return err
	}
	began := time.Now()
	if err := d.ready(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "the engine is back after %.0f s; ", time.Since(began).Seconds())
	for _, f := range files {
		got, _, err := d.ask(ctx, f.data)
		if err != nil {
			return err
		}
		if got != answers[f.name] {
			return fmt.Errorf("%s after the restart: %s instead of %s", f.name, got, answers[f.name])
		}
	}
	st = s.stats()
	fmt.Fprintf(out, "all photos asked for again, %d had to be decoded\n\n", st.Cache.Produced-before.Cache.Produced)
	fmt.Fprintf(out, "%d requests, %d finished, %d aborted or lost, %d fences; hits %.0f %%, %d items of %.1f MB in the cache\n",
		st.Engine.Requests, st.Engine.Finished, st.Engine.Failed, st.Engine.Fences, 100*st.HitRate, st.Cache.CachedItems, float64(st.Cache.CachedBytes)/1e6)
	return nil
}

type demonstration struct {
	out io.Writer
	s   *server
	url string
}

type photo struct {
	name string
	data []byte
}

func demoPhotos(dir string) (out []photo, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !slices.Contains([]string{".jpg", ".jpeg", ".png"}, strings.ToLower(filepath.Ext(e.Name()))) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, photo{e.Name(), b})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no JPEG or PNG files in %s", dir)
	}
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ready waits for the engine.
func (d *demonstration) ready(ctx context.Context) error {
	began, told := time.Now(), time.Now()
	for {
		if time.Since(told) >= 10*time.Second {
			told = time.Now()
			fmt.Fprintf(d.out, "  %.0f s\n", time.Since(began).Seconds())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/health", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// post asks about an image and returns the open answer.
func (d *demonstration) post(ctx context.Context, image []byte, tokens int) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{
		"prompt_token_ids": append([]uint32{1, 20}, append(d.s.vision.prompt, 30)...),
		"images":           [][]byte{image},
		"params":           map[string]any{"max_tokens": tokens, "temperature": 0, "ignore_eos": true},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/generate", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// ask returns the tokens and how long they took.
func (d *demonstration) ask(ctx context.Context, image []byte) (string, time.Duration, error) {
	began := time.Now()
	res, err := d.post(ctx, image, 8)
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	var tokens []uint32
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		var p part
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return "", 0, err
		}
		if p.Error != "" {
			return "", 0, errors.New(p.Error)
		}
		tokens = append(tokens, p.Tokens...)
	}
	return fmt.Sprint(tokens), time.Since(began), nil
}

// crowd has eight clients ask at once; every third request is given up.
func (d *demonstration) crowd(ctx context.Context, files []photo, answers map[string]string) error {
	const clients, each = 8, 12
	var wait sync.WaitGroup
	errs := make([]error, clients)
	began := time.Now()
	for c := range clients {
		wait.Go(func() {
			for i := range each {
				f := files[(c+i)%len(files)]
				if i%3 == 2 {
					over, cancel := context.WithTimeout(ctx, time.Duration(1+c)*time.Millisecond)
					if res, err := d.post(over, f.data, 1000); err == nil {
						res.Body.Close()
					}
					cancel()
					continue
				}
				got, _, err := d.ask(ctx, f.data)
				if err == nil && got != answers[f.name] {
					err = fmt.Errorf("%s: %s instead of %s", f.name, got, answers[f.name])
				}
				if err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	wait.Wait()
	st := d.s.stats()
	fmt.Fprintf(d.out, "\n%d clients, %d requests in %.1f s, a third given up: %d aborted, hits %.0f %%\n", clients, clients*each, time.Since(began).Seconds(), st.Engine.Failed, 100*st.HitRate)
	return errors.Join(errs...)
}

// kill ends the engine's processes in the midst of a request, whose client gets an error.
func (d *demonstration) kill(ctx context.Context, image []byte) error {
	res, err := d.post(ctx, image, 2000)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() {
		return errors.New("no answer")
	}
	if err := d.s.engine.Kill(); err != nil {
		return err
	}
	var p part
	for lines.Scan() {
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return err
		}
	}
	if p.Error == "" {
		return errors.New("the request was not told")
	}
	fmt.Fprintf(d.out, "the client was told %q\n", p.Error)
	return nil
}
