package warm

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

// stateHead is the first line of a state file.
const stateHead = "ringcache warm 1\n"

// content is what an image is known by.
type content struct {
	sum  [sha256.Size]byte
	size int64
}

// state is the images that the engine has answered, in memory and in a file. The file is only appended to, so that two
// runs at a time do no harm: each line is one write.
type state struct {
	model string

	mu   sync.Mutex
	done map[content]struct{}
	file *os.File // nil without a file
}

// openState reads the state of earlier runs with this model. Without a path there is no file.
func openState(path, model string) (_ *state, err error) {
	s := &state{model: model, done: map[content]struct{}{}}
	if path == "" {
		return s, nil
	}
	// The answer of a pipe or device would never come.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("state %s is no file: name one, or one that is not there yet", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w", path, err), s.file.Close())
	}
	return s, nil
}

// load reads the file, and ends its last line if it is torn.
func (s *state) load() error {
	r := bufio.NewReaderSize(s.file, 64<<10)
	head := make([]byte, len(stateHead))
	n, err := io.ReadFull(r, head)
	switch {
	case n < len(head) && stateHead[:n] == string(head[:n]): // new, or its first line is torn
		_, err = s.file.WriteString(stateHead[n:])
		return err
	case string(head[:n]) != stateHead:
		return errors.New("not a state of ringcache warm: it is left as it is; name another file")
	case err != nil:
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) { // no line of ours: skipped
			_, err = r.ReadSlice('\n')
		}
		if err == io.EOF {
			if len(line) > 0 { // torn
				_, err := s.file.WriteString("\n")
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
		if c, model, ok := parseState(string(line)); ok && !long && model == s.model {
			s.done[c] = struct{}{}
		}
	}
}

// line returns the line of an image: its sum, its size, and the name of the model in quotes.
func (s *state) line(c content) string {
	return fmt.Sprintf("%x %d %q\n", c.sum, c.size, s.model)
}

// parseState reads a line. What is no line of a state is torn, and is not done.
func parseState(line string) (c content, model string, ok bool) {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
	if len(fields) != 3 || len(fields[0]) != 2*sha256.Size {
		return c, "", false
	}
	if _, err := hex.Decode(c.sum[:], []byte(fields[0])); err != nil {
		return c, "", false
	}
	size, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || size <= 0 {
		return c, "", false
	}
	c.size = size
	model, err = strconv.Unquote(fields[2])
	return c, model, err == nil
}

// has reports whether an image was answered, in this run or an earlier one.
func (s *state) has(c content) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.done[c]
	return ok
}

// add notes that the engine has answered the image.
func (s *state) add(c content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		if _, err := s.file.WriteString(s.line(c)); err != nil {
			return fmt.Errorf("the state can't be written: %w", err)
		}
	}
	s.done[c] = struct{}{}
	return nil
}

func (s *state) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
