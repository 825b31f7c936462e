// Package passwordfile reads passwords from files: command lines, environments and printed configurations are seen by
// others.
package passwordfile

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const most = 4096 // bytes

// Read returns the password in a file, without the end of its line.
func Read(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return "", fmt.Errorf("%s is no file of at most %d bytes: %w", file, most, fs.ErrInvalid)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("%s must contain one line, the password: %w", file, fs.ErrInvalid)
	}
	return password, nil
}
