package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/deploy"
)

// replicate makes the one configuration that there is into those of n processes, each with
// files and addresses of its own, and puts what spreads connections where the one would be.
func (p *benchParty) replicate(n int) error {
	made, err := os.ReadFile(p.configs[0])
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	config, err := deploy.LoadAggregator(p.configs[0], p.role)
	if err != nil {
		return err
	}
	var configs, behind []string
	for i := range n {
		a, err := deploy.Loopback()
		if err != nil {
			return err
		}
		public, local := a.Leader.Addr().String(), a.LeaderLocal.Addr().String()
		a.Close()
		name := fmt.Sprintf("%v-%d", p.role, i)
		file := filepath.Join(filepath.Dir(p.configs[0]), name+".toml")
		if err := os.WriteFile(file, []byte(ReplicaConfig(string(made), name, public, local)), 0o600); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		configs, behind = append(configs, file), append(behind, public)
	}
	p.configs = configs
	p.front, err = NewBalancer(string(config.Public.Address), behind)
	return err
}
