package pgdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// source is the connection string as it is now.
func (o *Options) source() (string, error) {
	if o.File == "" {
		return o.Connection, nil
	}
	s, err := o.File.Text()
	if err != nil {
		return "", fmt.Errorf("pgdb: connection string: %w", err)
	}
	return s, nil
}

// pool makes the configuration of the pool. It connects to nothing.
func (o *Options) pool() (*pgxpool.Config, error) {
	c, err := o.parse()
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(o.Connections)
	// A connection whose server was replaced, or whose password was, goes in the end.
	c.MaxConnLifetime = connLifetime
	c.MaxConnLifetimeJitter = connLifetime / 4
	if o.File != "" {
		c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			fresh, err := o.parse()
			if err != nil {
				// While somebody writes the file the last string stays in use: the server
				// knows whether it is still good.
				return nil
			}
			*conn = *fresh.ConnConfig.Copy()
			return nil
		}
	}
	return c, nil
}

func (o *Options) parse() (*pgxpool.Config, error) {
	text, err := o.source()
	if err != nil {
		return nil, err
	}
	if text, err = withDefaults(text); err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(text)
	if err != nil {
		// The text may hold a password, and a parser's error parts of it.
		return nil, errors.New("pgdb: that is no connection string: want host=... port=... dbname=... user=... password=..., " +
			"or postgres://user:password@host:port/database, with files that can be read where it names some; try it with psql")
	}
	if err := check(&c.ConnConfig.Config); err != nil {
		return nil, err
	}
	// One round trip, types by those of Go's values, nothing prepared under a name.
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.ConnConfig.StatementCacheCapacity, c.ConnConfig.DescriptionCacheCapacity = 0, 0
	if o.Dial != nil {
		c.ConnConfig.DialFunc = o.Dial
	}
	return c, nil
}

// defaults count where a connection string says nothing else, before libpq's own and those
// of the environment: TLS is verified, and of several servers the one that takes writes is
// meant, so that a failover is followed.
var defaults = [][2]string{{"sslmode", "verify-full"}, {"target_session_attrs", "read-write"}}

func withDefaults(text string) (string, error) {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		for _, d := range defaults {
			text = d[0] + "=" + d[1] + " " + text // the last one of a key counts
		}
		return text, nil
	}
	head, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("pgdb: the query of the connection URL is malformed")
	}
	for _, d := range defaults {
		if !values.Has(d[0]) {
			values.Set(d[0], d[1])
		}
	}
	return head + "?" + values.Encode(), nil
}

// check refuses connections that are not verified, and parameters of a session.
func check(c *pgconn.Config) error {
	hosts := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for _, h := range hosts {
		if network, _ := pgconn.NetworkAddress(h.Host, h.Port); network == "unix" || local(h.Host) || verified(h.TLSConfig) {
			continue
		}
		return fmt.Errorf("pgdb: the connection to %s would not be verified: take sslmode=verify-full, with sslrootcert=FILE "+
			"where a certification authority of your own vouches for the server", h.Host)
	}
	for name := range c.RuntimeParams {
		if name != "application_name" {
			return fmt.Errorf("pgdb: %q in the connection string is a parameter of the session, which a pooler loses: "+
				"set it for the role (ALTER ROLE ... SET) or leave it out", name)
		}
	}
	return nil
}

func local(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func verified(c *tls.Config) bool { return c != nil && !c.InsecureSkipVerify && c.ServerName != "" }
