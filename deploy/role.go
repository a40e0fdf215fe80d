package deploy

import (
	"fmt"
	"slices"

	"github.com/starling-agg/starling/internal/service"
)

// A Role is the party that a configuration file is for; each file says its own.
type Role string

// The roles that have a configuration file.
const (
	LeaderRole    Role = "leader"
	HelperRole    Role = "helper"
	CollectorRole Role = "collector"
	RelayRole     Role = "relay"
	GatewayRole   Role = "gateway"
	LogRole       Role = "log"
	WitnessRole   Role = "witness"
	AttesterRole  Role = "attester"
	HopRole       Role = "hop"
	AnalyzerRole  Role = "analyzer"

	ControllerRole Role = "controller"
	AgentRole      Role = "agent"
)

// Roles are those that invite each other into a deployment, in the order in which a
// report meets them, the collector last.
var Roles = []Role{RelayRole, GatewayRole, LeaderRole, HelperRole, CollectorRole}

// AllRoles are those that have a configuration file: a log and its witnesses are invited by
// nobody, and serve more than one deployment; an attester, hops, an analyzer and a controller
// are named by recipes, and an agent by nobody.
var AllRoles = append(slices.Clone(Roles), LogRole, WitnessRole, AttesterRole, HopRole, AnalyzerRole, ControllerRole, AgentRole)

// A RoleError is the configuration of one party given to another.
type RoleError struct {
	File string
	Role Role // that it is of
	Want Role
}

func (e *RoleError) Error() string {
	return fmt.Sprintf("%s: role: it is the %s's configuration, and the %s's is wanted", e.File, e.Role, e.Want)
}

// RoleOf reads whose configuration a file is, and nothing else of it.
func RoleOf(path string) (Role, error) {
	var said struct {
		Role Role `toml:"role"`
	}
	if err := service.LoadKnown(path, &said); err != nil {
		return "", err
	}
	switch {
	case said.Role == "":
		return "", &service.ConfigError{File: path, Key: "role", Reason: `required, first in the file, such as role = "leader"`}
	case !slices.Contains(AllRoles, said.Role):
		return "", &service.ConfigError{File: path, Key: "role", Reason: fmt.Sprintf("%q is none of %v", said.Role, AllRoles)}
	}
	return said.Role, nil
}

// loadAs reads the configuration of one role, and says all that is wrong with it by
// itself, as validate does: keys that nobody knows do not hide the rest.
func loadAs(path string, role Role, into any, validate func() error) error {
	said, err := RoleOf(path)
	if err != nil {
		return err
	}
	if said != role {
		return &RoleError{path, said, role}
	}
	var f Faults
	if err := service.Load(path, into); err != nil {
		unknown, ok := err.(Faults)
		if !ok {
			return err
		}
		f = unknown
	}
	f.Add("", validate())
	return ofFile(path, f)
}
