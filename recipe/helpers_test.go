package recipe_test

import (
	"encoding/json"
	"io"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// describe shows a recipe as the accountant sees it.
func describe(r *Recipe, w io.Writer) error { return account.Describe(r, w) }

func marshal(r *Recipe) (json.RawMessage, error) {
	said, err := account.Of(r)
	if err != nil {
		return nil, err
	}
	return r.JSON(said)
}
