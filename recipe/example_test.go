package recipe_test

import (
	"fmt"
	"os"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A recipe is made once, written down, and read by everyone who is asked to agree to it.
func Example() {
	epsilon, _ := recipe.ParseDecimal("1")
	r, err := account.New(account.Options{
		Name:        "Doctor visits",
		Description: "How often people saw a doctor in a year.",
		Population:  &recipe.Population{Statement: "Everyone in the survey.", Expected: 20190},
		Query:       recipe.Histogram{Length: 21},
		Leader:      "https://leader.example/",
		Helper:      "https://helper.example/",
		MinBatch:    1000,
		Epsilon:     epsilon, // the noise is calibrated to this, at delta 1e-9
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := r.Append(nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// A reader checks what it read before believing any of it.
	read, err := recipe.Read(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := account.Validate(read); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(read.Query)
	fmt.Println(read.Claim)
	// Output:
	// each device names one of 21 buckets; the result is how many devices named each
	// epsilon 1 at delta 1e-9, replace neighbours, over 1 round, if 1 server is honest
}

// Without noise there is no differential privacy, and the description says so.
func ExampleRecipe_Describe() {
	r, err := account.New(account.Options{
		Name: "Left-handedness", Query: recipe.Count{}, MinBatch: 500,
		Leader: "https://leader.example/", Helper: "https://helper.example/",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := account.Describe(r, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Left-handedness
	//
	// Recipe          57b3eba8aa922b7d805c454af25ec7e14ec6e5d3502e3bc6d44adf880fec9e17
	// Asked           each device answers yes or no; the result is how many answered yes
	// Protects        one device, as the recipe names no unit: a report is made of one record; nothing is said of
	//                 a person with several
	// When            no limit in time; report times are cut to 1h0m0s
	// Rounds          a round is 60 minutes; rounds are released after their end, alone or several together
	// Taking part     every device that is asked answers
	// On the device   the device sends its true answer, split in shares
	// Path            two servers, leader https://leader.example/ and helper https://helper.example/; the
	//                 collector names the time interval of each batch
	//                 these are of different owners as far as names tell; only a log or a list of owners can tell
	//                 more
	// Keys            none are named: whoever answers for the servers' addresses can put keys of its own in the
	//                 servers' place, and read every answer. All that is said here holds if that is an owner whom
	//                 you trust with the answers
	// Devices         are not counted: nothing keeps one of them, or a server, from sending many reports
	// Who sees what   leader: the network address and time of each upload, one share of each answer (random by
	//                 itself), and the number of reports
	//                 helper: the other share of each answer (random by itself), and the number of reports; not
	//                 who sent them
	//                 collector: the released result and the number of reports
	// Batches         nothing is released about fewer than 500 reports
	// Noise           none: results are exact
	//
	// Guarantee       none by differential privacy: the result is not blurred, and someone who knows the other
	//                 answers can work out the last one. What protects a person is that only sums of 500 or more
	//                 are released.
	// Assuming that   - the leader and the helper do not put their shares together
	// Otherwise       - if the leader and the helper put their shares together: no differential privacy (they can
	//                 read every answer)
	// Claim           no differential privacy is claimed
}
