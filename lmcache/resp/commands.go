package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// command is one that is known. least and most are of its arguments; -1 is any number.
type command struct {
	least, most int
	before      bool // also before the password
	run         func(c *conn) error
	stream      func(c *conn, n int64) error // in place of run: reads its arguments itself
}

var commands map[string]command

func init() { //nolint:gochecknoinits // INFO and COMMAND would refer to the table in which they are
	commands = map[string]command{
		"AUTH":     {least: 1, most: 2, before: true, run: (*conn).auth},
		"HELLO":    {most: 16, before: true, run: (*conn).hello},
		"QUIT":     {most: -1, before: true, run: (*conn).quit},
		"RESET":    {before: true, run: (*conn).reset},
		"CLIENT":   {least: 1, most: 16, run: (*conn).client},
		"PING":     {most: 1, run: (*conn).ping},
		"ECHO":     {least: 1, most: 1, run: (*conn).echo},
		"SELECT":   {least: 1, most: 1, run: (*conn).selectDB},
		"INFO":     {most: -1, run: (*conn).info},
		"COMMAND":  {most: -1, run: (*conn).describe},
		"TIME":     {run: (*conn).time},
		"EXISTS":   {least: 1, most: -1, stream: (*conn).exists},
		"GET":      {least: 1, most: 1, run: (*conn).get},
		"MGET":     {least: 1, most: -1, run: (*conn).mget},
		"STRLEN":   {least: 1, most: 1, run: (*conn).strlen},
		"SET":      {least: 2, most: 16, stream: (*conn).set},
		"DEL":      {least: 1, most: -1, stream: (*conn).del},
		"UNLINK":   {least: 1, most: -1, stream: (*conn).del},
		"FLUSHDB":  {most: 1, run: (*conn).flush},
		"FLUSHALL": {most: 1, run: (*conn).flush},
	}
}

// word returns an argument in capitals.
func (c *conn) word(i int) string { return strings.ToUpper(string(c.words.at(i))) }

const wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."

func (c *conn) auth() error {
	user, password := []byte("default"), c.words.at(c.words.len()-1)
	if c.words.len() == 3 {
		user = c.words.at(1)
	}
	switch {
	case c.server.o.Password == "" && c.words.len() == 2:
		c.error("ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?")
	case c.server.o.Password != "" && c.words.len() == 2 && c.password([]byte(c.server.o.User), password),
		c.server.o.Password != "" && c.words.len() == 3 && c.password(user, password),
		c.server.o.Password == "" && string(user) == c.server.o.User:
		c.authed = true
		c.ok()
	default:
		c.wrongPassword()
	}
	return nil
}

// wrongPassword answers a wrong password. The connection goes on, as one of Redis does: a client may have sent more.
func (c *conn) wrongPassword() {
	c.server.counts.wrongPasswords.Add(1)
	c.server.refused.Warn(c.server.o.Logger, "resp: a client has another password", "from", c.net.RemoteAddr())
	c.error(wrongPassword)
}

// hello answers HELLO [2|3 [AUTH user password] [SETNAME name]].
func (c *conn) hello() error {
	protocol := c.protocol
	name := c.name
	authed := c.authed
	rest := c.words.len() - 1
	if rest > 0 {
		n, ok := number(c.words.at(1))
		if !ok {
			c.error("ERR Protocol version is not an integer or out of range")
			return nil
		}
		if n != 2 && n != 3 {
			c.error("NOPROTO unsupported protocol version")
			return nil
		}
		protocol = int(n)
		rest--
	}
	for i := c.words.len() - rest; i < c.words.len(); {
		left := c.words.len() - i - 1
		switch option := c.word(i); {
		case option == "AUTH" && left >= 2:
			if c.server.o.Password != "" && !c.password(c.words.at(i+1), c.words.at(i+2)) {
				c.wrongPassword()
				return nil
			}
			authed = true
			i += 3
		case option == "SETNAME" && left >= 1:
			if !isName(c.words.at(i + 1)) {
				c.error(wrongName)
				return nil
			}
			name = string(c.words.at(i + 1))
			i += 2
		default:
			c.error("ERR Syntax error in HELLO option '%.32s'", option)
			return nil
		}
	}
	if !authed {
		c.error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> " +
			"AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version " +
			"at the same time")
		return nil
	}
	c.protocol, c.name, c.authed = protocol, name, true
	c.fields(7)
	c.text("server")
	c.text("ringcache")
	c.text("version")
	c.text(level)
	c.text("proto")
	c.int(int64(protocol))
	c.text("id")
	c.int(int64(c.id)) //nolint:gosec // a count
	c.text("mode")
	c.text("standalone")
	c.text("role")
	c.text("master")
	c.text("modules")
	c.array(0)
	return nil
}

// level is the release of Redis whose commands are spoken, by which clients choose.
const level = "7.0.0"

const wrongName = "ERR Client names cannot contain spaces, newlines or special characters."

// isName reports whether Redis would take a text as the name of a client.
func isName(b []byte) bool {
	return len(b) <= 256 && bytes.IndexFunc(b, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func (c *conn) quit() error {
	c.ok()
	c.ended = true
	return nil
}

func (c *conn) reset() error {
	c.protocol, c.name, c.authed = 2, "", c.server.o.Password == ""
	c.status("RESET")
	return nil
}

// client answers what clients say of themselves.
func (c *conn) client() error {
	n := c.words.len() - 2
	switch what := c.word(1); {
	case what == "SETINFO" && n == 2, what == "NO-EVICT" && n == 1, what == "NO-TOUCH" && n == 1:
		c.ok()
	case what == "SETNAME" && n == 1:
		if !isName(c.words.at(2)) {
			c.error(wrongName)
			return nil
		}
		c.name = string(c.words.at(2))
		c.ok()
	case what == "GETNAME" && n == 0:
		if c.name == "" {
			c.null()
			return nil
		}
		c.text(c.name)
	case what == "ID" && n == 0:
		c.int(int64(c.id)) //nolint:gosec // a count
	default: // clients take an error to MAINT_NOTIFICATIONS or TRACKING for "there are none"
		c.error("ERR unknown subcommand or wrong number of arguments for '%.32s'", what)
	}
	return nil
}

func (c *conn) ping() error {
	if c.words.len() == 2 {
		c.bulk(c.words.at(1))
		return nil
	}
	c.status("PONG")
	return nil
}

func (c *conn) echo() error {
	c.bulk(c.words.at(1))
	return nil
}

func (c *conn) selectDB() error {
	switch n, ok := number(c.words.at(1)); {
	case !ok:
		c.error("ERR invalid DB index")
	case n != 0:
		c.error("ERR DB index is out of range")
	default:
		c.ok()
	}
	return nil
}

func (c *conn) time() error {
	now := time.Now()
	c.array(2)
	c.text(strconv.FormatInt(now.Unix(), 10))
	c.text(strconv.Itoa(now.Nanosecond() / int(time.Microsecond)))
	return nil
}

// info answers INFO, whatever the section.
func (c *conn) info() error {
	n := c.server.Counts()
	c.text(fmt.Sprintf("# Server\r\nserver_name:ringcache\r\nredis_version:%s\r\nredis_mode:standalone\r\n"+
		"# Clients\r\nconnected_clients:%d\r\n# Stats\r\nkeyspace_hits:%d\r\nkeyspace_misses:%d\r\n"+
		"# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n", level, n.Connected, n.Hits, n.Misses))
	return nil
}

// describe answers COMMAND: clients that want to know more than names go without.
func (c *conn) describe() error {
	switch {
	case c.words.len() == 2 && c.word(1) == "COUNT":
		c.int(int64(len(commands)))
	case c.words.len() >= 2 && c.word(1) == "DOCS":
		c.fields(0)
	default:
		c.array(0)
	}
	return nil
}
