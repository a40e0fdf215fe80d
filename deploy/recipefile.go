package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// ReadRecipe reads a recipe file: the recipe's bytes, and its certificate, which is empty
// where there is none.
func ReadRecipe(path string) (alone, certificate []byte, err error) {
	b, err := readFile(path, recipe.MaxFileSize)
	if err != nil {
		return nil, nil, fmt.Errorf("recipe: %w", err)
	}
	if alone, certificate, err = recipe.SplitFile(b); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return alone, certificate, nil
}

// OpenRecipe reads and checks a recipe file, once, for a party that asks the accountant.
// Its guarantee holds, and so does its certificate if there is one, or it is an error.
func OpenRecipe(path string) (*recipe.Checked, error) {
	b, err := readFile(path, recipe.MaxFileSize)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	c, err := openRecipe(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// OpenCertified reads and checks a recipe file, once, as a device does: by its certificate,
// and by nothing else.
func OpenCertified(path string) (*recipe.Checked, error) {
	b, err := readFile(path, recipe.MaxFileSize)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	c, err := recipe.OpenFile(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// RecipeFileOf returns what a file of the recipe holds: its bytes, and where it claims
// something its certificate. It fails with [recipe.ErrNoCertificate] where none is found.
func RecipeFileOf(r *recipe.Recipe) ([]byte, error) {
	b, err := r.Append(nil)
	if err != nil || r.Exact() {
		return b, err
	}
	certificate, err := account.Certify(r)
	return append(b, certificate...), err
}

// AddCertificate puts a certificate behind the recipe in a file that has none.
func AddCertificate(path string, certificate []byte) error {
	alone, old, err := ReadRecipe(path)
	if err != nil {
		return err
	}
	if len(old) > 0 {
		return fmt.Errorf("%s: it has a certificate", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(alone, certificate...))
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
