package serve

import (
	"fmt"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// WriteSpec replaces the spec with that file name, without extension, where container runtimes find
// it; nil removes it.
func WriteSpec(dir, name string, spec *specs.Spec) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if spec == nil {
		return cache.RemoveSpec(name)
	}
	versioned := *spec
	if versioned.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	if err := cache.WriteSpec(&versioned, name); err != nil {
		return fmt.Errorf("write CDI spec to %s: %w", dir, err)
	}
	return nil
}
