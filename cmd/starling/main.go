// Starling plays every party of private aggregation from one binary.
package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"
)

func main() { os.Exit(start()) }

// start wires the process to the commands.
func start() int {
	// The first signal asks the command to stop in order; the second kills the process.
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	context.AfterFunc(ctx, cancel)

	e := &env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, plain: !utf8Locale()}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		e.width = 80
		if w, _, err := term.GetSize(fd); err == nil {
			e.width = w
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		e.asked = n
	}
	e.watched = term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb"
	return play(ctx, e, os.Args[1:])
}

// utf8Locale reports whether the terminal's user reads more than ASCII.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			return strings.Contains(strings.ToLower(strings.ReplaceAll(v, "-", "")), "utf8")
		}
	}
	return true
}

// root lists the commands in the order in which a newcomer meets them.
func root() *command {
	return &command{
		name:  "starling",
		short: "Private statistics: everyone counts, no one is seen",
		long: `An organisation asks, devices answer, and two servers that each see only noise add the answers up.
The result is a histogram, a count or a sum, with its error and a guarantee that each device checks for itself.`,
		examples: [][2]string{
			{"starling lab", "play every party on this machine and see a private histogram of real data"},
			{"starling lab --keep DIR", "the same, and leave the deployment in DIR for the other commands"},
		},
		sub: []*command{
			labCommand(), initCommand(), serveCommand(), recipeCommand(), keyCommand(), manifestCommand(), logCommand(), attesterCommand(), enrolCommand(), visitCommand(), sendCommand(), budgetCommand(), statusCommand(), whyCommand(), taskCommand(), repairCommand(), backupCommand(), restoreCommand(), migrateCommand(), collectCommand(), checkCommand(), doctorCommand(), benchCommand(),
			accountCommand(), figuresCommand(), flCommand(),
			versionCommand(), licensesCommand(),
		},
	}
}
