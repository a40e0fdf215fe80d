//go:build !lean

package main

import "github.com/starling-agg/starling/dap"

// lean says whether this is the build for agents and accountants alone, which go build makes
// with -tags lean. It is the same commands, as far as they weigh little: what draws, plays
// or measures all parties, or opens a store is not in it. docs/dependencies.md has the sizes.
const lean = false

// elsewhere goes with a hint at what a build has.
const elsewhere = ""

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
			labCommand(), initCommand(),
			serveCommand("a leader, a helper, a relay, a gateway, a transparency log, a witness, a hop, an analyzer, a controller or an agent",
				serveRole(dap.RoleLeader), serveRole(dap.RoleHelper), serveRelay(), serveGateway(), serveLog(), serveWitness(), serveAttester(), serveHop(),
				serveAnalyzer(), serveController(), serveAgent()),
			recipeCommand(recipePlan(), recipeNew(), recipeAgain(), recipeShow(), recipeCertificate()),
			keyCommand(), manifestCommand(), logCommand(), attesterCommand(), enrolCommand(), visitCommand(), sendCommand(), budgetCommand(),
			statusCommand(), whyCommand(), taskCommand(), repairCommand(), backupCommand(), restoreCommand(), migrateCommand(), collectCommand(),
			checkCommand(), doctorCommand(), benchCommand(),
			accountCommand(), figuresCommand(),
			flCommand(flPlanCommand(), flTrainCommand(), flLabCommand(), flStatusCommand(), flStartCommand(), flModelCommand()),
			versionCommand(), licensesCommand(),
		},
	}
}
