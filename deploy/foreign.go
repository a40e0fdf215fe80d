package deploy

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
)

// maxConfiguration bounds a task configuration in bytes.
const maxConfiguration = 256 << 10

// foreign says whether the task is nobody's recipe here.
func (t *Task) foreign() bool { return t.Configuration != "" }

// validateSource says what is wrong with where the task comes from.
func (t *Task) validateSource() error {
	switch {
	case t.Recipe == "" && !t.foreign():
		return errors.New("recipe: required, or the configuration of a task without one")
	case t.Recipe != "" && t.foreign():
		return errors.New("configuration: the task is its recipe's, and has none of its own")
	case t.Recipe != "" && (t.ID != "" || t.DAP != dap.Draft18):
		return errors.New("id and dap: the recipe says them")
	}
	return nil
}

// ofConfiguration is a task of others.
func (t *Task) ofConfiguration(config []byte) (out aggregator.Task, err error) {
	if out, err = aggregator.ForeignTask(t.DAP, config, aggregator.Secrets{}); err != nil {
		return out, fmt.Errorf("configuration: %s: %w", t.Configuration, err)
	}
	out.Expected = t.expectation()
	if t.ID != "" {
		if out.ID, err = dap.ParseTaskID(t.ID); err != nil {
			return out, fmt.Errorf("id: %w", err)
		}
	}
	return out, nil
}

// baseOf is the base URL by which a task knows the aggregator of that role.
func baseOf(t *aggregator.Task, role dap.Role) (string, error) {
	config, err := dap.ReadTaskConfiguration(t.Version, t.Config)
	if err != nil {
		return "", err
	}
	if role == dap.RoleHelper {
		return string(config.Helper), nil
	}
	return string(config.Leader), nil
}
