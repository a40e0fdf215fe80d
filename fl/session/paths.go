package session

import "github.com/starling-agg/starling/recipe"

// Paths below a controller's or a relay's URL, which follow from the recipe and from what
// is announced, and so are the same for every device.

// Dir is where everything of the trainings is.
const Dir = "training/"

// SessionPath is where the session of a recipe is.
func SessionPath(id recipe.ID) string { return Dir + id.String() + "/session" }

// AnnouncementPath is where the newest announcement is.
func AnnouncementPath(id recipe.ID) string { return Dir + id.String() + "/announcement" }

// ModelPath is where the blob of a model is.
func ModelPath(id recipe.ID, h Hash) string { return Dir + id.String() + "/models/" + h.String() }
