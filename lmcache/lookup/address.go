package lookup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// errInvalid is what every refusal of this package wraps.
var errInvalid = sentinel.New(sentinel.Invalid, "lookup: invalid argument")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...)
}

// An Address is where the workers of an engine answer (get_zmq_rpc_path_lmcache in lmcache/v1/rpc_utils.py of 0.5.6).
type Address struct {
	Base   string // VLLM_RPC_BASE_PATH, for which vLLM takes the folder of temporary files
	Engine string // the engine_id of vLLM's kv_transfer_config
	// Port is the option lmcache_rpc_port, to which the rank is added. If it is a text, it is PortName, behind which
	// the rank is written.
	Port     int
	PortName string
}

// maxPath is the longest path of a unix socket, in bytes.
const maxPath = 107

// Path returns the socket of a worker.
func (a Address) Path(rank int) (string, error) {
	port := a.PortName + strconv.Itoa(rank)
	if a.PortName == "" {
		port = strconv.Itoa(a.Port + rank)
	}
	if a.Base == "" || a.Engine == "" || rank < 0 {
		return "", invalid("address: the base %q, the engine %q or the rank %d is missing", a.Base, a.Engine, rank)
	}
	long := fmt.Sprintf("%s/engine_%s_service_lookup_lmcache_rpc_port_%s", a.Base, a.Engine, port)
	if len(long) <= maxPath {
		return long, nil
	}
	sum := sha256.Sum256([]byte(long))
	short := fmt.Sprintf("%s/lmcache_rpc_%x", strings.TrimSuffix(a.Base, "/"), sum[:8])
	if len(short) > maxPath {
		return "", invalid("address: the base %q is too long for a socket; the most is %d bytes", a.Base, maxPath)
	}
	return short, nil
}

// Listen listens at a path, for the user of this process alone. It removes a socket there at which nobody
// listens: ended workers leave them. Nothing else is removed.
func Listen(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		c, dialed := net.Dial("unix", path)
		if dialed == nil {
			return nil, errors.Join(fmt.Errorf("lookup: somebody listens at %s: %w", path, err), c.Close())
		}
		// To connect to a file is refused, too.
		info, e := os.Lstat(path)
		if !errors.Is(dialed, syscall.ECONNREFUSED) || e == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("lookup: %w", errors.Join(err, dialed))
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("lookup: %w", err)
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("lookup: %w", err), l.Close())
	}
	return l, nil
}
