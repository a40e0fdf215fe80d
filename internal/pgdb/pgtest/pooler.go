//go:build unix

package pgtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Pooler puts a pooler in transaction mode before a server: each transaction of a client
// goes to the next connection of a few, with all that earlier ones left there.
// It returns the connection string to it.
func Pooler(t testing.TB, connection string, connections int) string {
	t.Helper()
	servers := make(chan *pgconn.HijackedConn, connections)
	connect := func() error {
		c, err := pgconn.Connect(t.Context(), connection)
		if err != nil {
			return err
		}
		h, err := c.Hijack()
		if err == nil {
			servers <- h
		}
		return err
	}
	for range connections {
		if err := connect(); err != nil {
			t.Fatal(err)
		}
	}
	// lose ends a connection whose transaction has lost its client, and has another one.
	lose := func(h *pgconn.HijackedConn) {
		_ = h.Conn.Close()
		for connect() != nil && t.Context().Err() == nil {
			time.Sleep(50 * time.Millisecond) // a server that starts again: there is no signal to wait for
		}
	}
	dir, err := os.MkdirTemp("", "pgpool")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = os.RemoveAll(dir)
		for {
			select {
			case h := <-servers:
				_ = h.Conn.Close()
				continue
			default:
			}
			return
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, servers, lose)
		}
	}()
	return fmt.Sprintf("host=%s user=pooled dbname=pooled", dir)
}

// serve is one client of a pooler, until it goes.
func serve(c net.Conn, servers chan *pgconn.HijackedConn, lose func(*pgconn.HijackedConn)) {
	defer c.Close()
	client := pgproto3.NewBackend(c, c)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.BackendKeyData{SecretKey: []byte{0, 0, 0, 0}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if client.Flush() != nil {
		return
	}
	var server *pgconn.HijackedConn
	defer func() {
		if server != nil {
			lose(server)
		}
	}()
	for {
		m, err := client.Receive()
		if err != nil {
			return
		}
		if _, bye := m.(*pgproto3.Terminate); bye {
			return
		}
		if server == nil {
			server = <-servers
		}
		server.Frontend.Send(m)
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			status, err := answer(client, server.Frontend)
			if err != nil {
				return
			}
			if status == 'I' {
				servers <- server
				server = nil
			}
		}
	}
}

// answer hands over what the server says until it is ready, and how.
func answer(client *pgproto3.Backend, server *pgproto3.Frontend) (status byte, err error) {
	if err := server.Flush(); err != nil {
		return 0, err
	}
	for {
		m, err := server.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(m)
		ready, is := m.(*pgproto3.ReadyForQuery)
		if !is {
			if err := client.Flush(); err != nil {
				return 0, err
			}
			continue
		}
		status := ready.TxStatus
		return status, client.Flush()
	}
}
