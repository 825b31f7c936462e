package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
)

// protocolServer serves a protocol on any number of listeners.
type protocolServer interface {
	Serve(l net.Listener) error
	// Shutdown lets what is under way end, until ctx ends.
	Shutdown(ctx context.Context)
}

// listening are the listeners of a protocol that is not ours.
type listening struct {
	key       string // of the setting
	sockets   []*socket
	listeners []protocolListener
}

type protocolListener struct {
	net.Listener
	server protocolServer
}

// listen listens at an address, of a unix socket or of TCP.
func (s *listening) listen(ctx context.Context, network, address string, server protocolServer) error {
	if network == "unix" {
		socket, err := makeSocket(ctx, address)
		if err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
		s.sockets = append(s.sockets, socket)
		for _, l := range socket.listeners {
			s.listeners = append(s.listeners, protocolListener{l, server})
		}
		return nil
	}
	l, err := listenTCP(ctx, s.key, address)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, protocolListener{l, server})
	return nil
}

// listenTCP listens at an address that is no path. key is the setting.
func listenTCP(ctx context.Context, key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; give another address", key, err)
	}
	return l, nil
}

// serve serves all listeners.
func (s *listening) serve(tasks *sync.WaitGroup, failed chan<- error) {
	for _, l := range s.listeners {
		tasks.Go(func() {
			if err := l.server.Serve(l.Listener); err != nil {
				failed <- fmt.Errorf("the listener at %s: %w", l.Addr(), err)
			}
		})
	}
}

// check reports that clients can't find a socket any more. A listener that fails ends the daemon, as ours do.
func (s *listening) check() error {
	var errs []error
	for _, socket := range s.sockets {
		if err := socket.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.key, err))
		}
	}
	return errors.Join(errs...)
}

// close closes what is open, and removes sockets.
func (s *listening) close() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, socket := range s.sockets {
		errs = append(errs, socket.close())
	}
	return errors.Join(errs...)
}

// parseValueAddress reads an address of lm or resp: HOST:PORT or unix:///PATH. From other machines it
// must not be reached unless anywhere is set.
func parseValueAddress(text string, anywhere bool) (network, address string, err error) {
	if u, err := url.Parse(text); err == nil && u.Scheme == "unix" {
		pathOnly := *u == url.URL{Scheme: "unix", Path: u.Path, RawPath: u.RawPath}
		if !filepath.IsAbs(u.Path) || len(u.Path) > maxSocket || !pathOnly {
			return "", "", fmt.Errorf("%q is not unix:///PATH with a path of at most %d bytes", text, maxSocket)
		}
		return "unix", u.Path, nil
	}
	host, port, err := net.SplitHostPort(text)
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil:
		return "", "", fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:65432, and not unix:///PATH", text)
	case host != "" && host != "localhost" && net.ParseIP(host) == nil:
		return "", "", fmt.Errorf("the host %q is no IP address: write the address", host)
	case !anywhere && !loopback(text): // the protocol has no password, and values are what users have said
		return "", "", fmt.Errorf("%q is reached from other machines, and nothing is encrypted: "+
			"use 127.0.0.1:%s or a unix socket, or set values-any if that is meant", text, port)
	}
	return "tcp", text, nil
}
