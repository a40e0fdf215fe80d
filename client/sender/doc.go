// Package sender carries answers from a program to a recipe's servers, in one of three
// ways:
//
//   - [New] sends many answers for people whose ledgers are kept elsewhere, or nowhere;
//   - [OpenPerson] answers round after round for one person, out of a directory that holds
//     the person's ledger and what was seen of manifests;
//   - [Crowd] plays devices that are made up, each with its own coins.
//
// A person's way is this: [Person.Decide] charges the ledger and tosses the coins, or goes
// on with the slot that was drawn before; then the decision is sent at once
// (participate.Decision.Send), or where devices donate at a random time, in its slot, by
// [Person.SendDue] or [Person.SendInTime]. A caller that says or returns anything after
// Decide tells the coins, unless it is the same whatever they said.
//
// Where recipes count devices, a [Purse] has the credentials that these show
// (client.Options.Credentials), and visits the attester for them.
package sender
