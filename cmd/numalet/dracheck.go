package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dracheck"
)

// draCheckFlags holds the flags of "numalet plugin check --dra".
type draCheckFlags struct {
	driver, registry, slices string
	claims, cdi              []string
}

func (f *draCheckFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.driver, "dra", "",
		"check a DRA driver: its name, or the path of the socket in the plugin registry of one that "+
			"runs")
	flags.StringVar(&f.registry, "registry", "/var/lib/kubelet/plugins_registry",
		"plugin registry where --dra looks for a name")
	flags.StringArrayVar(&f.claims, "claim", nil,
		"claim that is allocated to the driver of --dra, NAMESPACE/NAME/UID; repeatable")
	flags.StringVar(&f.slices, "slices", "",
		"file with the ResourceSlices of the driver of --dra (kubectl get resourceslices -o yaml)")
	flags.StringArrayVar(&f.cdi, "cdi-dir", nil,
		"directory where the plugin or driver writes CDI files; repeatable (the runtimes' own)")
}

// complete checks the flags together with those of device plugins.
func (f *draCheckFlags) complete(plugin check.Config) error {
	switch {
	case f.driver != "" && plugin.Dir != "":
		return errors.New("--dir is for device plugins: start the driver of --dra with --exec, or name " +
			"the registry of one that runs with --registry")
	case f.driver != "" && plugin.Command != "" && strings.Contains(f.driver, "/"):
		return errors.New("--exec starts the driver: name it with --dra, without a path")
	case f.driver == "" && (len(f.claims) > 0 || f.slices != ""):
		return errors.New("--claim and --slices are for a DRA driver: name it with --dra")
	}
	return nil
}

func (f *draCheckFlags) check(ctx context.Context, plugin check.Config) (check.Report, error) {
	cfg := dracheck.Config{
		Socket: f.driver, CDI: f.cdi, Patience: plugin.Patience, OnResult: plugin.OnResult,
		Command: plugin.Command, Driver: f.driver, Output: plugin.Output, Only: plugin.Only,
	}
	var err error
	if plugin.Command == "" && !filepath.IsAbs(f.driver) && !strings.Contains(f.driver, "/") {
		if cfg.Socket, err = dracheck.Find(ctx, f.registry, f.driver); err != nil {
			return check.Report{}, err
		}
	}
	for _, given := range f.claims {
		parts := strings.Split(given, "/")
		if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
			return check.Report{}, fmt.Errorf("--claim %q: write NAMESPACE/NAME/UID", given)
		}
		cfg.Claims = append(cfg.Claims, dra.Claim{
			Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2]),
		})
	}
	if f.slices != "" {
		if cfg.Slices, err = readSlices(f.slices); err != nil {
			return check.Report{}, err
		}
	}
	return dracheck.Run(ctx, cfg)
}

// readSlices reads ResourceSlices, or lists of them, one document after the other.
func readSlices(path string) ([]resourcev1.ResourceSlice, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := []resourcev1.ResourceSlice{}
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var doc struct {
			resourcev1.ResourceSlice `json:",inline"`
			Items                    []resourcev1.ResourceSlice `json:"items"`
		}
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("--slices %s: %w", path, err)
		}
		if doc.Items = append(doc.Items, doc.ResourceSlice); len(doc.Items) > 1 {
			doc.Items = doc.Items[:len(doc.Items)-1] // it is a list
		}
		out = append(out, doc.Items...)
	}
}
