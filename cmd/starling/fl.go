package main

// flCommand is the group of commands about training, with those that a build has.
func flCommand(sub ...*command) *command {
	return &command{name: "fl", short: "Train a model on data that stays where it is", sub: sub}
}
