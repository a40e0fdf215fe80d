//go:build unix

package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Fate is what becomes of what a client asks its server at one time: of a statement, or
// of a BEGIN or COMMIT with what comes with it.
type Fate string

const (
	Arrives    Fate = ""
	LostBefore Fate = "lost before"   // the connection ends, and the server hears nothing
	LostAfter  Fate = "lost after"    // the server has answered, and nobody hears it
	UnderWay   Fate = "still at work" // the connection ends, and the server goes on for a while
	Conflict   Fate = "40001"         // serialization_failure, in place of what was asked
	Deadlock   Fate = "40P01"         // deadlock_detected
	NoRoom     Fate = "53100"         // disk_full
	Unsynced   Fate = "58030"         // io_error: what fsync says becomes this
	ShutDown   Fate = "57P01"         // admin_shutdown, and the connection ends
	longest         = 64 << 20        // of a message
	cancelling      = 80877102        // code of a startup that ends another connection's statement
)

// Connecting is what a [Line] asks the fate of before all else, in place of SQL.
const Connecting = "connect"

// A Line is a way to a server, on which what is asked has its fate.
type Line struct {
	// Connection is the connection string of a role by this line.
	Connection string

	network, address string
	fate             func(sql string) Fate
	rewrite          func(sql string) string
	listener         net.Listener
	dir              string

	mu    sync.Mutex // guards what follows
	open  map[net.Conn]bool
	ended bool
}

// NewLine lays a line to where a connection string leads. fate is called with what is asked,
// one call at a time for each connection, and must be safe for many; nil lets all arrive.
// rewrite, if not nil, changes statements on the way. A test whose clients are in a
// synctest bubble lays its lines outside of it, or its time would stand still.
func NewLine(t testing.TB, connection string, fate func(sql string) Fate, rewrite func(sql string) string) *Line {
	t.Helper()
	config, err := pgconn.ParseConfig(connection)
	if err != nil {
		t.Fatal(err)
	}
	if config.TLSConfig != nil {
		t.Skip("a line reads what it carries, and this server takes TLS alone")
	}
	l := &Line{fate: fate, rewrite: rewrite, open: make(map[net.Conn]bool)}
	l.network, l.address = pgconn.NetworkAddress(config.Host, config.Port)
	if l.dir, err = os.MkdirTemp("", "pgline"); err != nil {
		t.Fatal(err)
	}
	if l.listener, err = net.Listen("unix", filepath.Join(l.dir, ".s.PGSQL.5432")); err != nil {
		t.Fatal(err)
	}
	l.Connection = fmt.Sprintf("host=%s port=5432 dbname=%s user=%s password=%s sslmode=disable", l.dir, config.Database, config.User, config.Password)
	t.Cleanup(l.End)
	go func() {
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			go l.carry(c)
		}
	}()
	return l
}

// End ends all connections, and takes no more: a machine that lost power, or its network.
func (l *Line) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	_ = l.listener.Close()
	_ = os.RemoveAll(l.dir)
	for c := range l.open {
		_ = c.Close()
	}
}

// hold keeps a connection among those that End ends; false if it has.
func (l *Line) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = c.Close()
		return false
	}
	l.open[c] = true
	return true
}

func (l *Line) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close()
}

// carry is one connection, from its start to its end. Client and server take turns.
func (l *Line) carry(client net.Conn) {
	if !l.hold(client) {
		return
	}
	defer l.drop(client)
	if l.fate != nil && l.fate(Connecting) != Arrives {
		return
	}
	server, err := net.Dial(l.network, l.address)
	if err != nil || !l.hold(server) {
		return
	}
	defer l.drop(server)
	from, to := bufio.NewReader(client), bufio.NewReader(server)
	hello, err := startup(from)
	if err != nil {
		return
	}
	if _, err := server.Write(hello); err != nil || binary.BigEndian.Uint32(hello[4:]) == cancelling {
		return
	}
	if !welcome(client, server, from, to) {
		return
	}
	for {
		asked, sql, err := l.ask(from)
		if err != nil {
			return
		}
		fate := Arrives
		if l.fate != nil && sql != "" {
			fate = l.fate(sql)
		}
		switch fate {
		case LostBefore:
			return
		case Arrives, LostAfter, UnderWay:
		default:
			asked = raise(fate)
		}
		if _, err := server.Write(asked); err != nil || sql == "" {
			return
		}
		if fate == UnderWay {
			l.drop(client)
		}
		for ready := false; !ready; {
			m, err := message(to)
			if err != nil {
				return
			}
			ready = m[0] == 'Z'
			if fate == LostAfter || fate == UnderWay {
				continue
			}
			if _, err := client.Write(m); err != nil {
				return
			}
		}
		if fate == LostAfter || fate == UnderWay || fate == ShutDown {
			return
		}
	}
}

// startup reads the first message, which has no type.
func startup(r io.Reader) ([]byte, error) {
	b := make([]byte, 4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(b)
	if n < 8 || n > longest {
		return nil, errors.New("pgtest: a startup message of no length")
	}
	b = append(b, make([]byte, n-4)...)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// message reads one message, with its type and length.
func message(r io.Reader) ([]byte, error) {
	b := make([]byte, 5)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n < 4 || n > longest {
		return nil, errors.New("pgtest: a message of no length")
	}
	b = append(b, make([]byte, n-4)...)
	_, err := io.ReadFull(r, b[5:])
	return b, err
}

// welcome hands over what both say until the server is ready, password and all.
func welcome(client, server io.Writer, from, to io.Reader) bool {
	const done, last = 0, 12 // of an 'R': no more is asked
	for {
		m, err := message(to)
		if err != nil {
			return false
		}
		if _, err := client.Write(m); err != nil {
			return false
		}
		if m[0] == 'Z' {
			return true
		}
		if m[0] != 'R' {
			continue
		}
		if code := binary.BigEndian.Uint32(m[5:]); code == done || code == last {
			continue
		}
		if m, err = message(from); err != nil {
			return false
		}
		if _, err := server.Write(m); err != nil {
			return false
		}
	}
}

// ask reads what the client asks until it waits for an answer, and the SQL of it; none if it
// says goodbye.
func (l *Line) ask(from io.Reader) (asked []byte, sql string, err error) {
	for {
		m, err := message(from)
		if err != nil {
			return nil, "", err
		}
		switch m[0] {
		case 'X':
			return append(asked, m...), "", nil
		case 'Q':
			text := m[5 : len(m)-1]
			sql = string(text)
			return append(asked, l.put('Q', nil, sql, nil)...), sql, nil
		case 'P': // name, SQL, types
			name, rest, _ := bytes.Cut(m[5:], []byte{0})
			text, types, _ := bytes.Cut(rest, []byte{0})
			sql = string(text)
			asked = append(asked, l.put('P', append(bytes.Clone(name), 0), sql, types)...)
		case 'S':
			if sql == "" {
				sql = "sync"
			}
			return append(asked, m...), sql, nil
		default:
			asked = append(asked, m...)
		}
	}
}

// put is a message that has SQL, as it is on this line.
func (l *Line) put(kind byte, before []byte, sql string, after []byte) []byte {
	if l.rewrite != nil {
		sql = l.rewrite(sql)
	}
	b := append([]byte{kind, 0, 0, 0, 0}, before...)
	b = append(append(b, sql...), 0)
	b = append(b, after...)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
	return b
}

// raise asks the server to fail as if what was asked had.
func raise(code Fate) []byte {
	return new(Line).put('Q', nil, "DO $$ BEGIN RAISE EXCEPTION 'pgtest' USING ERRCODE = '"+string(code)+"'; END $$", nil)
}
