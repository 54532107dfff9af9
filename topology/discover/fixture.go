package discover

import (
	"embed"
	"fmt"
	"strings"

	"github.com/numalet/numalet/topology"
)

//go:embed machines/*.yaml
var machines embed.FS

// Fixture returns a built-in machine, for tests, the playground and experiments.
func Fixture(name string) (*topology.Machine, error) {
	f, err := machines.Open("machines/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no built-in machine %q; there are: %s",
			name, strings.Join(FixtureNames(), ", "))
	}
	defer f.Close()
	m, err := ParseYAML(f)
	if err != nil {
		return nil, fmt.Errorf("built-in machine %s: %w", name, err)
	}
	return m, nil
}

// FixtureNames lists the built-in machines in alphabetical order.
func FixtureNames() []string {
	entries, err := machines.ReadDir("machines")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}
