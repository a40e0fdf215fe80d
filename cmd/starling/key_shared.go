package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/vdaf"
)

// keyVerifyCommand makes what leader and helper share of a task, and nobody else may know.
func keyVerifyCommand() *command {
	return &command{
		name: "verify", args: "[--json] --out FILE",
		short: "Make a verification key, which leader and helper of a task share",
		long: `It has both aggregators check reports by the same random choices. Devices and collectors must not learn it, for who knows it could make
a report that passes and is none: give it to the other aggregator over a channel that you trust, and name it in both
configurations: verify_keys = [{ id = 1, file = "FILE" }] of the task.`,
		examples: [][2]string{{"starling key verify --out secrets/verify.key", "for one task, by one of its two aggregators"}},
		setup:    sharedSecret("key verify", "verification key", vdaf.VerifyKeySize),
	}
}

// tokenBytes is how much chance there is in a token, in bytes.
const tokenBytes = 32

// keyTokenCommand makes a bearer token.
func keyTokenCommand() *command {
	return &command{
		name: "token", args: "[--json] --out FILE",
		short: "Make a bearer token, by which one party knows another",
		long: `Make one for each pair of parties: leader and helper (peer_token), leader and collector (collector_token, token), relay and gateway
(gateway_token, relay_token), and whoever makes manifests with leader and helper (signing.token, manifest new --token). Both
sides have the same file; its holder is taken for the other.`,
		examples: [][2]string{{"starling key token --out secrets/peer.token", "for leader and helper"}},
		setup:    sharedSecret("key token", "token", tokenBytes),
	}
}

// keyWrappingCommand makes what wraps the keys that lie in a database.
func keyWrappingCommand() *command {
	return &command{
		name: "wrapping", args: "[--json] --out DIR",
		short: "Make a key that wraps what a helper's processes keep in their database",
		long: `For engine = "postgres": HPKE keys and data keys lie in the database, wrapped by the newest key in DIR, which is wrapping_keys
of [database]. All processes have the same files there, and no backup of the database has them: without them it opens to
nobody, and whoever has both reads what was to be forgotten. A further key is the newest: copy it to all processes at once.`,
		examples: [][2]string{{"starling key wrapping --out secrets/wrapping", "before the first process is started"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			out := flags.String("out", "", "add it to this directory, `DIR`, which nobody else may read; required")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("key wrapping", args); err != nil {
					return err
				}
				if *out == "" {
					return usageOf("key wrapping", errors.New("starling key wrapping needs --out"))
				}
				name, err := database.AddWrappingKey(*out, time.Now())
				if err != nil {
					return ofInput(err, "name a directory that you may write")
				}
				if *asJSON {
					return e.json(map[string]any{"directory": *out, "key": name})
				}
				fmt.Fprintf(e.stdout, "%s: wrapping key %s\n", *out, name)
				return nil
			}
		},
	}
}

// sharedSecret writes random bytes in hexadecimal digits to a file that must not exist.
func sharedSecret(path, what string, size int) func(*flag.FlagSet) func(context.Context, *env, []string) error {
	return func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
		out := flags.String("out", "", "write it to this `FILE`, which nobody else may read; required")
		asJSON := flags.Bool("json", false, "print one JSON object")
		return func(_ context.Context, e *env, args []string) error {
			if err := noArgs(path, args); err != nil {
				return err
			}
			if *out == "" {
				return usageOf(path, errors.New("starling "+path+" needs --out"))
			}
			secret := make([]byte, size)
			rand.Read(secret)
			if err := writeNew(*out, 0o600, hex.AppendEncode(nil, secret)); err != nil {
				return err
			}
			if *asJSON {
				return e.json(map[string]any{"file": *out})
			}
			_, err := fmt.Fprintf(e.stdout, "%s %s\n", what, *out)
			return err
		}
	}
}
