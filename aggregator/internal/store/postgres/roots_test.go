//go:build postgres

package postgres_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// A burglar has a database, the wrapping keys of now and every data key, and looks for what
// is of one task, as docs/registry.md has it.
type burglar struct {
	t      *testing.T
	x      session
	files  *wrap.Files
	task   dap.TaskID
	bucket uint64 // of its parts
	ids    []dap.ReportID
}

// secret is the task's; nil where it does not open.
func (b *burglar) secret() []byte {
	b.t.Helper()
	ctx := b.t.Context()
	var id []byte
	is(b.t, b.x.QueryRow(ctx, "SELECT store_id FROM identity").Scan(&id), nil)
	var root string
	var box []byte
	var wrapped wrap.Box
	err := b.x.QueryRow(ctx, `SELECT s.root, s.box, r.wrapping, r.box FROM task_secret AS s JOIN task AS t ON t.id = s.task
		JOIN secret AS r ON r.purpose = 4 AND r.name = s.root WHERE t.task_id = $1`, b.task[:]).Scan(&root, &box, &wrapped.Key, &wrapped.Sealed)
	if err != nil {
		return nil
	}
	aad := append([]byte("starling secret row v1"), id...)
	secret, err := b.files.Unwrap(ctx, wrapped, append(append(aad, 4, byte(len(root))), root...))
	if err != nil {
		is(b.t, err, wrap.ErrNoKey)
		return nil
	}
	aad = append([]byte("starling task secret v1"), id...)
	own, err := gcmOf(secret).Open(nil, nil, box, append(append(aad, b.task[:]...), root...))
	is(b.t, err, nil)
	return own
}

// opens says what opens: parts of sums, noise, noised shares, ids; and what does without
// the task's secret.
func (b *burglar) opens() (list []string) {
	t, ctx := b.t, b.t.Context()
	t.Helper()
	keys, err := testKeys()
	is(t, err, nil)
	secret := b.secret()
	expand := func(domain string, size int) []byte {
		key, err := hkdf.Expand(sha256.New, secret, domain+string(b.task[:]), size)
		is(t, err, nil)
		return key
	}
	// try says which key of a row's time opens it.
	try := func(what string, serial uint64, aad, box []byte) {
		key, err := keys.By(serial)
		is(t, err, nil)
		if _, err := key.Open(aad, box); err == nil {
			list = append(list, what+" without the secret")
		}
		if secret == nil {
			return
		}
		if _, err := key.Of(b.task, secret).Open(aad, box); err == nil {
			list = append(list, what)
		}
	}
	var reports, first, last, serial uint64
	var sum, box []byte
	err = b.x.QueryRow(ctx, `SELECT p.reports, p.first_time, p.last_time, p.data_key, p.checksum, p.share FROM part AS p JOIN batch AS b ON p.batch = b.id
		JOIN task AS t ON t.id = b.task WHERE t.task_id = $1 AND b.bucket = $2 LIMIT 1`, b.task[:], int64(b.bucket)).Scan(&reports, &first, &last, &serial, &sum, &box)
	if err == nil {
		for _, version := range []string{"v1", "v2"} {
			aad := append(append([]byte("starling part row "+version), b.task[:]...), byte(dap.TimeInterval))
			for _, n := range []uint64{b.bucket, reports, first, last, serial} {
				aad = binary.BigEndian.AppendUint64(aad, n)
			}
			try("part", serial, append(aad, sum...), box)
		}
	}
	var entries uint64
	err = b.x.QueryRow(ctx, `SELECT n.first, n.last, n.entries, n.data_key, p.box FROM noise AS n JOIN noise_part AS p ON p.noise = n.id
		JOIN task AS t ON t.id = n.task WHERE t.task_id = $1 LIMIT 1`, b.task[:]).Scan(&first, &last, &entries, &serial, &box)
	if err == nil {
		for _, version := range []string{"v1", "v2"} {
			aad := append([]byte("starling noise row "+version), b.task[:]...)
			for _, n := range []uint64{first, last, entries, serial, 0} {
				aad = binary.BigEndian.AppendUint64(aad, n)
			}
			try("noise", serial, aad, box)
		}
	}
	var kind int
	var resource string
	err = b.x.QueryRow(ctx, `SELECT r.kind, r.resource_id, k.box FROM kept AS k JOIN resource AS r ON r.id = k.resource
		JOIN task AS t ON t.id = r.task WHERE t.task_id = $1 LIMIT 1`, b.task[:]).Scan(&kind, &resource, &box)
	if err == nil {
		if bytes.Contains(box, []byte("noised share")) {
			list = append(list, "kept without the secret")
		}
		if secret != nil {
			aad := append([]byte("starling task kept v1"), b.task[:]...)
			if _, err := gcmOf(expand("starling task kept v1", 32)).Open(nil, nil, box, fmt.Appendf(aad, "%d %s", kind, resource)); err == nil {
				list = append(list, "kept")
			}
		}
	}
	rows, err := b.x.Query(ctx, "SELECT ids, digest, (SELECT resource_key FROM identity) FROM run JOIN task ON task.id = run.task WHERE task_id = $1", b.task[:])
	is(t, err, nil)
	defer rows.Close()
	for rows.Next() {
		var ids, digest, key []byte
		is(t, rows.Scan(&ids, &digest, &key), nil)
		set := segment.SetKeyOf(key)
		for _, id := range b.ids {
			var one segment.SetDigest
			one.Put(&set, segment.ReportID(id))
			if bytes.Contains(ids, id[:]) || bytes.Equal(one[:], digest) {
				list = append(list, "ids without the secret")
			}
			if secret != nil {
				block, err := aes.NewCipher(expand("starling task ids v1", 64)[:32])
				is(t, err, nil)
				var hidden [16]byte
				block.Encrypt(hidden[:], id[:])
				if bytes.Contains(ids, hidden[:]) {
					list = append(list, "ids")
				}
			}
		}
	}
	is(t, rows.Err(), nil)
	slices.Sort(list)
	return slices.Compact(list)
}

// TestTaskShredded: when a task is retired its sums, noise, noised shares and ids open no
// more, whoever has every data key: not in the database at once, and not in a dump of
// before, once the wrapping key of then has ended. Another task goes on through all of that.
func TestTaskShredded(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	files := wrapping(t, disktest.NewMem(1))
	handle := func() *postgres.Store {
		t.Helper()
		return openWith(t, s, func(o *postgres.Options) { o.Wrapper = wrapped(files) })
	}
	ended := storetest.Task(t, dap.TimeInterval, 1)
	ended.End = storetest.Epoch
	other := *ended
	other.ID, other.End = dap.TaskID{0xee}, time.Time{}
	h := &helper{t: t, a: handle(), b: handle(), task: ended, owner: connect(t, s, s.Owner)}
	for _, e := range []*postgres.Store{h.a, h.b} {
		is(t, e.PutTask(ctx, ended), nil)
		is(t, e.PutTask(ctx, &other), nil)
	}
	h.owner.ok("INSERT INTO data_key (serial, first, until) VALUES (1, 0, 1)")
	is(t, h.correlate(h.a, 20, 100), nil)
	h.series = nil
	c := storetest.Commit(t, ended, []store.Batch{{Start: 30}}, []dap.Time{30}, [][]int{{200, 201, 202, 203, 204}})
	h.answered(h.b, "thirty", "r00000", c)
	r, err := h.release(h.b, storetest.Interval(30, 1), 5, checksum(200, 201, 202, 203, 204), &store.Kept{Key: 1, Box: []byte("noised share"), Asked: []byte("asked")})
	is(t, err, nil)
	h.answered(h.a, "one", "r0", h.commit(0))
	k, err := h.b.Kept(ctx, store.KindShare, ended.ID, r.ID)
	if is(t, err, nil); string(k.Box) != "noised share" {
		t.Errorf("the noised share that is kept is %q", k.Box)
	}
	h.task = &other
	h.answered(h.a, "other", "r000", h.commit(10, 11, 14))
	h.task = ended

	ids := []dap.ReportID{storetest.ReportID(0), storetest.ReportID(100), storetest.ReportID(200)}
	want := func(when string, want ...string) {
		t.Helper()
		b := &burglar{t: t, x: connect(t, s, s.Service), files: files, task: ended.ID, bucket: 10, ids: ids}
		if got := b.opens(); !slices.Equal(got, want) {
			t.Errorf("%s opens %q, want %q", when, got, want)
		}
	}
	all := []string{"ids", "kept", "noise", "part"}
	want("the database", all...)
	backup := s.Backup(t)
	for _, id := range ids {
		if bytes.Contains(backup, []byte(hex.EncodeToString(id[:]))) {
			t.Error("a dump has an id in the clear")
		}
	}

	is(t, h.a.Retire(ctx, ended.ID, storetest.Epoch), nil)
	want("the database, from which nothing is erased yet,")
	for more := true; more; {
		more, err = h.b.Sweep(ctx, ended.ID, 100)
		is(t, err, nil)
	}
	step := func(e *postgres.Store, want bool) {
		t.Helper()
		if worked, err := e.StepSecrets(ctx); err != nil || worked != want {
			t.Fatalf("%v, %v", worked, err)
		}
	}
	step(h.a, false)
	h.owner.ok("UPDATE secret SET made = made - 86400000000 WHERE purpose = 4")
	step(h.a, true) // there are two
	h.task = &other
	h.answered(h.b, "other 2", "r0", h.commit(12))
	step(h.b, true) // and one again
	step(h.a, false)
	h.answered(h.a, "other 3", "r0", h.commit(13))

	old, err := files.Newest(ctx)
	is(t, err, nil)
	_, err = files.Add(time.Unix(0, 0))
	is(t, err, nil)
	opt := options(s).Database
	opt.Connection, opt.Connections = s.Service, 4
	secrets, err := postgres.OpenSecrets(ctx, opt, files)
	is(t, err, nil)
	defer secrets.Close()
	is(t, secrets.End(ctx, old, time.Now()), postgres.ErrWraps)
	if n, err := secrets.Rewrap(ctx); n != 1 || err != nil {
		t.Errorf("%d roots are wrapped again, %v", n, err)
	}
	is(t, secrets.End(ctx, old, time.Now()), nil)

	// The dump is somebody's, for as long as the wrapping key of then is there.
	now := s.Backup(t)
	s.PutBack(t, backup)
	want("a dump of before", all...)
	is(t, files.End(old), nil)
	want("a dump of before, when its wrapping key has ended,")
	s.PutBack(t, now)

	h.a = handle()
	is(t, h.a.PutTask(ctx, &other), nil)
	h.owner = connect(t, s, s.Owner)
	h.answered(h.a, "again", "r2", h.commit(10))
	_, err = h.release(h.a, storetest.Interval(10, 1), 5, checksum(10, 11, 12, 13, 14), nil)
	is(t, err, nil)
	h.b = h.a
	h.audit("")
}

// older makes the schema as it was before there were secrets of tasks, and has this program
// work on it: what older ones need is there, and nothing else is written.
func older(t *testing.T, s *pgtest.Schema) {
	t.Helper()
	before := make(fstest.MapFS)
	for _, name := range []string{"0001_start.sql", "0002_marks.sql"} {
		b, err := os.ReadFile("migrations/" + name)
		is(t, err, nil)
		before[name] = &fstest.MapFile{Data: b}
	}
	opt := options(s).Database
	opt.Migrations = before
	db, err := pgdb.Open(t.Context(), opt)
	is(t, err, nil)
	db.Close()
}

// counted is how many rows a query finds.
func (x session) counted(sql string) (n int) {
	x.t.Helper()
	if err := x.QueryRow(x.t.Context(), "SELECT count(*) FROM "+sql).Scan(&n); err != nil {
		x.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// TestTasksGetSecrets: a schema of before has no secret and no row of the new form until the
// migration by which no older program runs. Then tasks get secrets, while commits are under
// way, and what is there of both forms is read as one.
func TestTasksGetSecrets(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	older(t, s)
	fail := new(disk.Failpoints)
	h := &helper{t: t, task: storetest.Task(t, dap.TimeInterval, 1)}
	h.a = openWith(t, s, func(o *postgres.Options) { o.Database.Failpoints, o.Database.Prefix = fail, "store" })
	h.b = open(t, s)
	h.owner = connect(t, s, s.Owner)
	is(t, h.a.PutTask(ctx, h.task), nil)
	is(t, h.b.PutTask(ctx, h.task), nil)
	h.answered(h.a, "one", "r000", h.commit(0, 1, 2))
	h.answered(h.b, "two", "r20", h.commit(2, 3))
	is(t, h.correlate(h.a, 20, 100), nil)
	h.series = nil
	step := func(e *postgres.Store, want bool) {
		t.Helper()
		if worked, err := e.StepSecrets(ctx); err != nil || worked != want {
			t.Fatalf("%v, %v", worked, err)
		}
	}
	step(h.a, false)
	for _, what := range []string{"secret", "task_secret", "part WHERE own", "noise WHERE own", "run WHERE veil IS NOT NULL"} {
		if n := h.owner.counted(what); n != 0 {
			t.Errorf("%d rows that an older program does not know: %s", n, what)
		}
	}
	// The statements of before find all that they name.
	hexes := func(n int) string { return fmt.Sprintf("decode(repeat('00', %d), 'hex')", n) }
	for _, sql := range []string{
		"INSERT INTO flight (token, task, ids, expires) VALUES (" + hexes(16) + ", 1, " + hexes(16) + ", now())",
		"INSERT INTO part (batch, reports, first_time, last_time, checksum, data_key, share, sum) SELECT id, 1, 1, 1, " + hash + ", 1, '', " + hash + " FROM batch LIMIT 1",
		"INSERT INTO run (task, count, ids, pages, filter, digest, sum) VALUES (1, 1, " + hexes(16) + ", " + hexes(48) + ", '', " + hash + ", " + hash + ")",
		"INSERT INTO noise (task, first, last, entries, data_key) VALUES (1, 1, 1, 1, 1)",
	} {
		h.owner.ok("BEGIN; " + sql + "; ROLLBACK")
	}
	h.audit("")
	// Nor does a task that ends there miss what came later.
	over := storetest.Task(t, dap.TimeInterval, 9)
	over.End = storetest.Epoch
	is(t, h.a.PutTask(ctx, over), nil)
	is(t, h.a.Retire(ctx, over.ID, over.End), nil)
	if more, err := h.a.Sweep(ctx, over.ID, 100); more || err != nil {
		t.Fatalf("%v, %v", more, err)
	}
	h.audit("")

	_, err := postgres.Migrate(ctx, options(s).Database, true)
	is(t, err, nil)
	h.answered(h.a, "three", "r0", h.commit(4))
	// A commit enters its ids in the clear, and the task gets its secret before it ends: who
	// comes with the same report then finds it all the same.
	late := make(chan error, 1)
	fail.Arm("store.take-off.after-commit", 0, func() error {
		fail.Disarm("store.take-off.after-commit")
		step(h.b, true) // a root
		step(h.b, true) // a secret
		step(h.b, false)
		go func() {
			r, _, err := h.b.Create(ctx, store.KindAggregation, h.task.ID, "", []byte("five"), false, nil, storetest.Epoch)
			if err == nil {
				_, err = h.b.CommitJob(ctx, r, h.commit(5, 6), func(verdict []dap.ReportError) ([]byte, error) {
					if verdict[0] != dap.ReportReplayed || verdict[1] != 0 {
						return nil, fmt.Errorf("verdicts %v", verdict)
					}
					return []byte("r20"), nil
				})
			}
			late <- err
		}()
		return nil
	})
	h.answered(h.a, "four", "r0", h.commit(5))
	is(t, <-late, nil)
	if n := h.owner.counted("run WHERE veil IS NOT NULL"); n == 0 {
		t.Error("no ids are enciphered")
	}
	h.answered(h.a, "six", "r2220", h.commit(0, 5, 6, 7))
	is(t, h.correlate(h.b, 24, 110), nil) // leans on noise of before
	h.series = nil
	h.audit("")

	// Ids of both forms come in order, some at a time.
	var want, got []dap.ReportID
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104, 110, 111, 112, 113, 114} {
		want = append(want, storetest.ReportID(n))
	}
	slices.SortFunc(want, func(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) })
	low, high := dap.ReportID(segment.AllIDs.Low), dap.ReportID(segment.AllIDs.High)
	for {
		some, err := h.a.AggregatedIDs(ctx, h.task.ID, low, high, 4)
		is(t, err, nil)
		if got = append(got, some...); len(some) < 4 {
			break
		}
		low = some[3]
		for i := len(low) - 1; ; i-- {
			if low[i]++; low[i] != 0 {
				break
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d ids in another order, want %d", len(got), len(want))
	}

	// Damaged runs of both forms are mended as one.
	h.owner.ok("UPDATE run SET ids = set_byte(ids, 3, get_byte(ids, 3) # 1) WHERE id IN ((SELECT min(id) FROM run WHERE veil IS NULL), (SELECT max(id) FROM run))")
	damage, err := h.a.CheckReplay(ctx, h.task.ID)
	if is(t, err, nil); len(damage) != 1 || damage[0].Files != 2 {
		t.Fatalf("%+v", damage)
	}
	known, err := h.a.AggregatedIDs(ctx, h.task.ID, dap.ReportID(segment.AllIDs.Low), high, 100)
	is(t, err, nil)
	lost := slices.DeleteFunc(slices.Clone(want), func(id dap.ReportID) bool { return slices.Contains(known, id) })
	is(t, h.a.Mend(ctx, h.task.ID, damage[0].Sum, lost), nil)
	if n := h.owner.counted("task_secret"); n != 1 {
		t.Errorf("%d tasks have a secret", n)
	}
	// Many commits make one run of those of both forms, enciphered.
	for n := range 12 {
		h.answered(h.b, fmt.Sprint("many ", n), "r0", h.commit(200+n))
	}
	if n := h.owner.counted("run WHERE veil IS NULL"); n != 0 {
		t.Errorf("%d runs are in the clear after a merge", n)
	}
	numbers := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for n := range 12 {
		numbers = append(numbers, 200+n)
	}
	h.answered(h.a, "all", "r"+string(bytes.Repeat([]byte("2"), len(numbers))), h.commit(numbers...))
	_, err = h.release(h.b, storetest.Interval(10, 1), uint64(len(numbers)), checksum(numbers...), nil)
	is(t, err, nil)
	h.audit("")
}

// TestSecretMeanwhile: a commit that has read the row of its task without a secret, and then
// meets ids that are under one, looks again.
func TestSecretMeanwhile(t *testing.T) {
	h := newOlder(t)
	x := connect(t, h.schema, h.schema.Owner)
	x.ok("BEGIN")
	x.ok("SELECT 1 FROM replay FOR UPDATE")
	done := make(chan error, 1)
	go func() {
		r, _, err := h.a.Create(context.Background(), store.KindAggregation, h.task.ID, "", []byte("one"), false, nil, storetest.Epoch)
		if err == nil {
			_, err = h.a.CommitJob(context.Background(), r, h.commit(0), func([]dap.ReportError) ([]byte, error) { return []byte("r0"), nil })
		}
		done <- err
	}()
	for h.owner.counted("pg_locks WHERE NOT granted") == 0 { // it has read the task
	}
	h.secrets()
	x.ok("INSERT INTO flight (token, task, ids, own, expires) VALUES (decode(repeat('00', 16), 'hex'), 1, '', true, now() + interval '100 milliseconds')")
	x.ok("COMMIT")
	is(t, <-done, nil)
	if n := h.owner.counted("run WHERE veil IS NOT NULL"); n != 1 {
		t.Errorf("%d runs are enciphered", n)
	}
	h.audit("")
	// No root ends that a task's secret is under, and no row changes its form.
	h.owner.refused("DELETE FROM secret WHERE purpose = 4", foreign, "")
	h.owner.ok("UPDATE part SET own = false")
	h.audit("is not what was written")
}

// TestRootsAtOnce: of replicas that start at once, and make the root of the next day at
// once, one makes it, and the secrets of tasks that come meanwhile lie under one that lives.
func TestRootsAtOnce(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	_, err := postgres.Migrate(ctx, options(s).Database, false)
	is(t, err, nil)
	const replicas = 5
	var all [replicas]*postgres.Store
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			opt := options(s)
			opt.Database.Connection, opt.Database.Connections = s.Service, 4
			e, err := postgres.Open(context.Background(), opt)
			if all[i] = e; err != nil {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		return
	}
	for _, e := range all {
		defer e.Close()
	}
	owner := connect(t, s, s.Owner)
	tasks := 0
	for day := range 4 {
		if n := owner.counted("secret WHERE purpose = 4"); n != 1 {
			t.Fatalf("there are %d roots on day %d", n, day)
		}
		owner.ok("UPDATE secret SET made = made - 86400000000 WHERE purpose = 4")
		for i, e := range all {
			wg.Go(func() {
				for n := range 4 {
					task := *storetest.Task(t, dap.TimeInterval, 1)
					task.ID = dap.TaskID{byte(day), byte(i), byte(n)}
					if err := e.PutTask(context.Background(), &task); err != nil {
						t.Error(err)
					}
					if _, err := e.StepSecrets(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if tasks += 4 * replicas; t.Failed() {
			return
		}
		for more := true; more; {
			more, err = all[day].StepSecrets(ctx)
			is(t, err, nil)
		}
		if n := owner.counted("task_secret JOIN secret AS s ON s.purpose = 4 AND s.name = root"); n != tasks {
			t.Fatalf("%d of %d tasks have a secret that opens", n, tasks)
		}
	}
}

// TestSecretsCrash: whatever transaction of roots and secrets is lost, or done and not
// heard of, the next step goes on from there, and every sum opens.
func TestSecretsCrash(t *testing.T) {
	power := errors.New("power")
	for _, at := range []string{"save-vault", "keep-vault", "reseal-secrets", "give-secret", "put-task", "retire-task"} {
		for _, when := range []string{".before-commit", ".after-commit"} {
			t.Run(at+when, func(t *testing.T) {
				ctx, s := t.Context(), pgtest.New(t)
				older(t, s)
				fail := new(disk.Failpoints)
				h := &helper{t: t, task: storetest.Task(t, dap.TimeInterval, 1), b: open(t, s), owner: connect(t, s, s.Owner)}
				h.a = openWith(t, s, func(o *postgres.Options) { o.Database.Failpoints, o.Database.Prefix = fail, "store" })
				ended := *h.task
				ended.ID, ended.End = dap.TaskID{9}, storetest.Epoch
				hit := false
				fail.Arm("store."+at+when, 0, func() error { fail.Disarm("store." + at + when); hit = true; return power })
				// again does it until it is done.
				again := func(what func() error) {
					t.Helper()
					if what() != nil {
						is(t, what(), nil)
					}
				}
				again(func() error { return h.a.PutTask(ctx, h.task) })
				again(func() error { return h.a.PutTask(ctx, &ended) })
				is(t, h.b.PutTask(ctx, h.task), nil)
				h.answered(h.b, "one", "r000", h.commit(0, 1, 2))
				_, err := postgres.Migrate(ctx, options(s).Database, true)
				is(t, err, nil)
				steps := func() {
					t.Helper()
					again(func() error {
						for more := true; more; {
							var err error
							if more, err = h.a.StepSecrets(ctx); err != nil {
								return err
							}
						}
						return nil
					})
				}
				steps()
				h.answered(h.b, "two", "r0", h.commit(3))
				h.owner.ok("UPDATE secret SET made = made - 86400000000 WHERE purpose = 4")
				steps()
				h.answered(h.b, "three", "r0", h.commit(4))
				again(func() error { return h.a.Retire(ctx, ended.ID, storetest.Epoch) })
				if n := h.owner.counted("task_secret"); n != 1 || h.owner.counted("secret WHERE purpose = 4") != 1 || !hit {
					t.Errorf("%d tasks have a secret; the failure came: %v", n, hit)
				}
				_, err = h.release(h.b, storetest.Interval(10, 1), 5, checksum(0, 1, 2, 3, 4), nil)
				is(t, err, nil)
				h.audit("")
			})
		}
	}
}
