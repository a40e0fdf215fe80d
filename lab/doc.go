// Package lab plays every party on loopback in one process: clients, leader, helper and collector, over real HTTP, with
// real encryption, real proofs, real noise and real stores. [Run] takes one private histogram of real data from the
// devices to the picture, and measures each step. It is the demonstration, the tutorial and a test of the whole.
//
// What is not as in earnest: one person holds all the keys, so the lab can show the truth beside the estimate, and one
// process holds all the parties, so it protects nobody's data. The data is public.
package lab
