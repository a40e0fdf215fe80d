package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// Exit codes, stable; docs/compatibility.md explains them to users and a test holds the
// two together.
const (
	exitDone        = 0   // it did what was asked
	exitFailed      = 1   // it failed for a reason that no other code names
	exitUsage       = 2   // the command line makes no sense
	exitInput       = 3   // a configuration, a recipe or an input file is wrong
	exitUnreachable = 4   // another party did not answer; trying again may help
	exitNotYet      = 5   // the answer is not there yet: fewer reports than the minimum batch, or still being worked on
	exitCheck       = 6   // a check ran and found something wrong
	exitInterrupted = 130 // stopped by SIGINT or SIGTERM before it was done
)

// A failure is an error that knows its exit code and what to type next.
type failure struct {
	code int
	err  error
	hint string // the next command to type, or what to change; may be empty
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(code int, hint, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...), hint}
}

// A deployment is what most configurations are missing from, a recipe what most recipe
// files are.
const (
	noDeployment = "name the file where it is, as in DIR/leader.toml; starling init --help makes parties of your own, and starling lab --keep demo a deployment to try, in demo/"
	noRecipe     = "starling recipe new --help says how to make one"
)

// ofInput makes an error a wrong input; the hint is for those that classify knows none for.
func ofInput(err error, hint string) error {
	if known := hintOf(err); known != "" {
		hint = known
	}
	return &failure{exitInput, err, hint}
}

// notDirectory refuses a directory where a file is wanted; names are what it may hold.
func notDirectory(command, path string, names ...string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil // what else may be wrong shows when it is read
	}
	hint := "starling " + command
	for _, name := range names {
		if name = filepath.Join(path, name); exists(name) {
			hint += " " + name
		}
	}
	return failf(exitInput, hint, "%s is a directory; want a file", path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// faultOf gives an error that a command ended with its exit code and its hint.
func faultOf(err error) failure {
	f := &failure{code: exitFailed, err: err}
	if !errors.As(err, &f) {
		f.code, f.hint = classify(err)
	}
	found := *f
	if found.code == exitFailed && found.hint == "" {
		found.hint = lastHint(err)
	}
	return found
}

// say prints an error as every command does and returns the exit code.
func say(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	f := faultOf(err)
	fmt.Fprintf(w, "starling: error: %v\n", err)
	if f.hint != "" {
		fmt.Fprintf(w, "starling: hint: %s\n", f.hint)
	}
	return f.code
}

// play runs a command line, says how it ended and returns the exit code. A command whose
// output did not get out has failed, whatever else it did.
func play(ctx context.Context, e *env, args []string) int {
	printed := &checkedWriter{w: e.stdout}
	e.stdout = printed
	err := root().run(ctx, e, "", args)
	if err == nil && printed.err != nil {
		err = failf(exitFailed, "", "standard output: %w", printed.err)
	}
	return say(e.stderr, err)
}

// A checkedWriter remembers the first error of a writer.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// whereToLook is the hint for failures of which nothing more is known.
const whereToLook = "starling doctor looks a deployment over; docs/operating.md and docs/recovery.md say what refusals mean"

// lastHint is for failures that nobody above had a hint for: none is without a next step.
func lastHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens there (ss -ltnp names it): stop it, or change `address` in the configuration's [public], [local] or [peer], whichever the error names"
	case errors.Is(err, disk.ErrLocked):
		return "a directory is for one process: stop the other one, which starling status finds"
	case errors.Is(err, syscall.ENOSPC):
		return "make room (df -h) and type it again; what was acknowledged is kept"
	case errors.Is(err, fs.ErrPermission):
		return "ls -l shows whose the file is: run as its owner, or name another"
	}
	return whereToLook
}

// classify gives a code to errors that no command has classified.
func classify(err error) (code int, hint string) {
	var config *service.ConfigError
	var mode *service.SecretModeError
	var sending *ohttp.SendingError
	var wide *disk.ModeError
	var store *aggregator.StoreError
	var state *gateway.StateError
	var role *deploy.RoleError
	var tenant *deploy.TenantError
	var forked *logserver.StateError
	var missing *deploy.NotJoinedError
	var asked *deploy.StateError
	var imported *deploy.ImportError
	var older *round.PutBackError
	switch {
	case errors.As(err, &imported):
		return exitInput, hintOfImport(imported)
	case errors.As(err, &missing):
		return exitInput, fmt.Sprintf("starling init --join %s%s --fingerprint F %s", missing.Role, deploy.InvitationSuffix, missing.Dir)
	case errors.As(err, &role):
		return exitInput, fmt.Sprintf("name the %s's file; starling doctor %s looks at this one", role.Want, role.File)
	case errors.As(err, &tenant):
		return exitInput, "start the file whose [[tenants]] names this one; status, why, doctor and task are given this one"
	case errors.As(err, &sending):
		return exitCheck, hintOfSending(sending)
	case errors.As(err, &config):
		if config.Reason == service.ReasonUnknown {
			return exitInput, "remove the line or correct the key's name; no key is ever ignored"
		}
		return exitInput, "docs/configuration.md says what each key means; starling check " + config.File + " looks at it, and starts nothing"
	case errors.As(err, &mode):
		return exitInput, "chmod 600 " + mode.Path
	case errors.As(err, &wide):
		return exitInput, "chmod 600 " + wide.Path
	case errors.As(err, &store):
		return exitFailed, store.Remedy()
	case errors.As(err, &state):
		return exitFailed, state.Remedy()
	case errors.As(err, &asked):
		return exitFailed, asked.Remedy()
	case errors.As(err, &forked):
		return exitFailed, "put both directories of the log back as they were last, not the older copy: docs/log.md; a log whose entries are lost begins anew under another key"
	case errors.Is(err, witness.ErrState):
		return exitFailed, "put the witness's directory back as it was last; where it is lost, begin anew under another key: docs/log.md"
	case errors.As(err, &older):
		return exitFailed, "put the controller's directory, or its database, back as it was last, not an older copy; where it is gone for good, make another recipe: docs/learning.md"
	case errors.Is(err, round.ErrHeld):
		return exitFailed, "the controller runs at another machine: look there, or stop it there first: docs/learning.md"
	case errors.Is(err, round.ErrLost):
		return exitFailed, "another process goes on with the training, or the database was put back: a start of this one tells which: docs/learning.md"
	case errors.Is(err, round.ErrJournal):
		return exitFailed, "put the controller's directory, or its database, back as it was last: docs/learning.md"
	case errors.Is(err, gateway.ErrRetired):
		return exitFailed, "a key that was in use and then was not has forgotten what it opened: take it out of the configuration, and make a new one with starling manifest new"
	case errors.Is(err, backup.ErrDataKeys):
		return exitFailed, "put data-keys in the record back as it was last; where keys are gone for good: starling restore --data-keys leader.toml, or helper.toml"
	case errors.Is(err, keyset.ErrDamaged):
		return exitFailed, "put the files of keys/ back from where they went; if they are gone for good, starling restore --keys makes new " +
			"ones, and what was acknowledged under the old ones counts as rejected"
	case errors.Is(err, fs.ErrNotExist):
		return exitInput, ""
	case errors.Is(err, context.Canceled):
		return exitInterrupted, ""
	}
	return exitFailed, ""
}

// hintOfImport says what to type in place of a line of [[tasks]], which is read once.
func hintOfImport(e *deploy.ImportError) string {
	if e.Err.Fault == aggregator.TaskUnknown {
		return fmt.Sprintf("take the line out, and type: starling task add --recipe %s %s.toml", e.Source, e.Role)
	}
	id := e.Err.Task.Base64()
	return fmt.Sprintf("take the line out: starling task show --task %s %s.toml prints what counts, and starling task change --task %s changes it", id, e.Role, id)
}

// hintOfSending says which manifest, or which recipe, would do.
func hintOfSending(e *ohttp.SendingError) string {
	longer := fmt.Sprintf("a recipe with a longer grace: starling recipe new --grace %v", e.Sending)
	switch {
	case e.Fits() >= time.Second:
		return fmt.Sprintf("starling manifest new --tries %d --every %v; or %s", e.Tries, e.Fits(), longer)
	case e.Grace >= time.Second:
		return fmt.Sprintf("starling manifest new --tries %d --every 1s; or %s", min(e.Grace/time.Second, ohttp.MaxTries), longer)
	}
	return longer
}

// hintOfCertificate says what to do where a party's certificate was not taken; empty where
// that is not what is wrong.
func hintOfCertificate(err error) string {
	invalid, named := new(x509.CertificateInvalidError), new(x509.HostnameError)
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "a party with a certificate of its own is trusted by SSL_CERT_FILE=DIR/" + deploy.CertificatesFile +
			" in front of the command: starling init writes that file; the other way is a certificate of an authority"
	case errors.As(err, invalid) && invalid.Reason == x509.Expired:
		return "the party's certificate is over, or a clock is wrong: its owner sees with starling check"
	case errors.As(err, named):
		return "the party's certificate is of another name than its URL: its owner sees with starling check"
	}
	return ""
}

// counted says how many there are of something.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
