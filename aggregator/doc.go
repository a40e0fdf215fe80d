// Package aggregator is the ground that the two aggregators of a task stand on: package leader takes reports from clients
// and answers the collector, package helper verifies with the leader and releases the second share.
package aggregator
