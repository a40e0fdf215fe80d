// Package deploy turns a directory of configuration into running parties. `starling
// serve` and the lab both start through it, so a deployment that the lab leaves behind is
// a valid one of two processes.
//
// A deployment is a directory (see [Create]):
//
//	recipe.starling        what was agreed; public
//	collector.hpke         the collector's public key; public
//	leader.toml helper.toml collector.toml
//	secrets/               keys and tokens, readable by their owner only
//	leader/ helper/        each aggregator's store, made when it first starts
//	leader.record/ helper.record/
//	                       what must not go back when that store does; elsewhere in earnest
//
// A gateway and a relay have gateway.toml and relay.toml beside these, or elsewhere.
//
// Where to look: [Init] makes a party of its own and joins invitations (init.go, package
// invitation), [Create] a deployment of all (create.go); configurations are read in
// config.go, role.go, gateway.go and relay.go, and checked by [CheckFile] (check.go); a
// party is started in start.go and front.go; package question decides what a collection
// asks for, session.go keeps it over restarts; what two servers share follows from
// agreement.go.
//
// In earnest leader, helper and collector are three organisations, and each holds only
// its own configuration and its own secrets; peer.token and verify.key are what leader
// and helper share.
package deploy
