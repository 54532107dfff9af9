package playground

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/controlplane"
	"github.com/numalet/numalet/topology/discover"
)

// refused is an error that says what to change in the options, so that no log is needed to know why.
type refused struct{ error }

// Unwrap returns the error.
func (r refused) Unwrap() error { return r.error }

// check refuses options that cannot be played with, before anything is made.
func (o Options) check() error {
	if err := o.fit(); err != nil {
		return err
	}
	if o.Machine != "" {
		if _, err := discover.Open(o.Machine); err != nil {
			return fmt.Errorf("--topology-from: %w", err)
		}
	}
	if o.Examples != "" && o.Examples != "none" {
		found, err := filepath.Glob(filepath.Join(o.Examples, "*.yaml"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("--examples %s: there is no manifest NAME.yaml in such a folder; \"none\" "+
				"starts without pods", o.Examples)
		}
	}
	if o.Config != "" {
		if _, err := o.settings(); err != nil {
			return err
		}
	}
	if o.Cluster != "" {
		if err := (controlplane.Config{Binaries: o.Cluster}).Check(); err != nil {
			return err
		}
	}
	if o.Runtime != Containerd {
		return nil
	}
	tools, err := toolsDir(o.Tools)
	if err != nil {
		return err
	}
	return containerd.Config{Binaries: tools}.Check()
}

// fit refuses options that exclude each other, or need others.
func (o Options) fit() error {
	for _, test := range []struct {
		wrong bool
		text  string
	}{
		{o.DRA && (o.GPU == "" || o.Cluster == ""), "--dra hands out GPUs by resource claim, which are " +
			"the API server's: give --gpu and --cluster too"},
		{o.GPU != "" && (o.Machine != "" || o.Runtime == Containerd), "--gpu brings a simulated machine of " +
			"its own: leave out --topology-from and --runtime=containerd"},
		{o.Driver != "" && o.Cluster == "", "--driver is of resource claims, which are the API server's: " +
			"give --cluster too"},
		{o.Plugin != "" && o.Driver != "", "--plugin and --driver are for one of yours at a time: leave one out"},
		{(o.Plugin != "" || o.Driver != "") && o.GPU != "", "--gpu brings a plugin of its own: leave it out " +
			"beside --plugin and --driver"},
	} {
		if test.wrong {
			return errors.New(test.text)
		}
	}
	return nil
}
