//go:build postgres

package postgres_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// BenchmarkRows takes reports of 232 bytes through a life with a row for each, as
// sqlite.BenchmarkLife does: acknowledged durably in groups of 1,000 by four connections,
// claimed as a range of 4,096, counted, each id kept for ever, and dropped. The bytes are
// those of the write-ahead log; those of tables and indexes, which come later, are not in
// it.
func BenchmarkRows(b *testing.B) {
	const reports, group, job = 100_000, 1000, 4096
	ctx := b.Context()
	s := pgtest.NewServer(b).Schema(b)
	open := func() *pgx.Conn {
		c, err := pgx.Connect(ctx, s.Owner)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close(ctx) })
		if _, err := c.Exec(ctx, "SET search_path TO "+pgx.Identifier{s.Name}.Sanitize()); err != nil {
			b.Fatal(err)
		}
		return c
	}
	c := open()
	exec := func(c *pgx.Conn, sql string, args ...any) int {
		tag, err := c.Exec(ctx, sql, args...)
		if err != nil {
			b.Error(err)
		}
		return int(tag.RowsAffected())
	}
	for _, sql := range []string{
		"CREATE SCHEMA " + pgx.Identifier{s.Name}.Sanitize(),
		"CREATE TABLE report (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL, bucket bigint NOT NULL, data bytea NOT NULL)",
		"CREATE TABLE seen (id bytea PRIMARY KEY)",
		"CREATE TABLE batch (bucket bigint PRIMARY KEY, count bigint NOT NULL)",
		"INSERT INTO batch VALUES (1, 0)",
	} {
		exec(c, sql)
	}
	position := func() (bytes int64) {
		if err := c.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint").Scan(&bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	clients := []*pgx.Conn{open(), open(), open(), open()}
	begin, round := position(), 0
	for b.Loop() {
		round++
		var next atomic.Int64
		var all sync.WaitGroup
		for _, client := range clients {
			all.Go(func() {
				for n := next.Add(1) - 1; n < reports/group; n = next.Add(1) - 1 {
					ids, data := make([][]byte, group), make([][]byte, group)
					for i := range group {
						var number [8]byte
						binary.BigEndian.PutUint64(number[:], uint64(round*reports+int(n)*group+i))
						sum := sha256.Sum256(number[:])
						ids[i], data[i] = sum[:16], make([]byte, 232)
					}
					exec(client, "INSERT INTO report (id, bucket, data) SELECT id, 1, data FROM unnest($1::bytea[], $2::bytea[]) AS x (id, data)", ids, data)
				}
			})
		}
		all.Wait()
		for done := 0; done < reports; {
			var first, last int64
			if err := c.QueryRow(ctx, "SELECT min(number), max(number) FROM (SELECT number FROM report ORDER BY number LIMIT $1) AS x", job).Scan(&first, &last); err != nil {
				b.Fatal(err)
			}
			if n := exec(c, "SELECT number, id, bucket, data FROM report WHERE number BETWEEN $1 AND $2", first, last); n == 0 {
				b.Fatalf("%d of %d reports", done, reports)
			}
			err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				var err error
				for _, sql := range []string{
					"INSERT INTO seen (id) SELECT id FROM report WHERE number BETWEEN $1 AND $2",
					"UPDATE batch SET count = count + 1 + $2 - $1 WHERE bucket = 1",
					"DELETE FROM report WHERE number BETWEEN $1 AND $2",
				} {
					tag, execErr := tx.Exec(ctx, sql, first, last)
					if err = execErr; err != nil {
						return fmt.Errorf("%s: %w", sql, err)
					}
					if sql[0] == 'D' {
						done += int(tag.RowsAffected())
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	n := float64(b.N * reports)
	b.ReportMetric(n/b.Elapsed().Seconds(), "reports/s")
	b.ReportMetric(float64(position()-begin)/n, "wal-bytes/report")
}
