//go:build lean

package main

const lean = true

const elsewhere = " lists what this build has, which is for agents and accountants; the whole program has more"

func root() *command {
	return &command{
		name:  "starling",
		short: "Private statistics: everyone counts, no one is seen",
		long: `This build has the agent of a machine and the accountant. The commands of other parties, the lab and the pictures are in the whole
program; those that are here are the same there.`,
		examples: [][2]string{
			{"starling account --mechanism gaussian --sigma 5 --delta 1e-9", "what some noise guarantees"},
			{"starling serve agent agent.toml", "take part in trainings for processes of this machine"},
		},
		sub: []*command{
			serveCommand("an agent", serveAgent()), recipeCommand(recipePlan(), recipeNew(), recipeShow()),
			enrolCommand(), visitCommand(), statusCommand(), checkCommand(), accountCommand(),
			flCommand(flPlanCommand(), flStatusCommand(), flStartCommand(), flModelCommand()), versionCommand(), licensesCommand(),
		},
	}
}
